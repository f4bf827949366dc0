// Command protobuf writes hub/src/apiserver/protobuf/samples.json.gz: objects of every built-in kind
// with values made up by chance, each as Go writes it in protobuf and in JSON.
//
//	cd e2e/modules/facts && go run ./protobuf -out ../../../hub/src/apiserver/protobuf/samples.json.gz
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand"
	"os"
	"reflect"
	"sort"
	"strings"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

// groups are those whose kinds the table of facts has.
var groups = map[string]bool{
	"": true, "apps": true, "events.k8s.io": true, "authentication.k8s.io": true,
	"authorization.k8s.io": true, "autoscaling": true, "batch": true, "certificates.k8s.io": true,
	"policy": true, "rbac.authorization.k8s.io": true, "storage.k8s.io": true,
	"apiextensions.k8s.io": true, "scheduling.k8s.io": true, "coordination.k8s.io": true,
	"node.k8s.io": true, "discovery.k8s.io": true, "networking.k8s.io": true,
}

type sample struct {
	Protobuf []byte          `json:"p"`
	JSON     json.RawMessage `json:"j"`
}

type filler struct {
	*rand.Rand
	chance float64
}

func (f filler) word() string {
	return []string{"", "a", "b-c", "x.y/z", "ü"}[f.Intn(5)]
}

func (f filler) fill(v reflect.Value, depth int) {
	switch at := v.Addr().Interface().(type) {
	case *meta.TypeMeta:
		return
	case *meta.Time:
		*at = meta.Time{Time: time.Unix(int64(f.Intn(1<<31)), 0).UTC()}
		return
	case *meta.MicroTime:
		*at = meta.MicroTime{Time: time.Unix(int64(f.Intn(1<<31)), int64(f.Intn(1000000))*1000).UTC()}
		return
	case *meta.Duration:
		at.Duration = time.Duration(f.Int63n(1 << 45))
		return
	case *resource.Quantity:
		*at = resource.MustParse([]string{"0", "1", "250m", "1Gi", "3e3"}[f.Intn(5)])
		return
	case *intstr.IntOrString:
		*at = intstr.FromInt32(int32(f.Intn(9)))
		if f.Intn(2) == 0 {
			*at = intstr.FromString("25%")
		}
		return
	case *runtime.RawExtension:
		at.Raw = []byte(`{"a":[1,"b"]}`)
		return
	case *meta.FieldsV1:
		at.Raw = []byte(`{"f:a":{}}`)
		return
	case *apiextensions.JSON:
		at.Raw = []byte(`{"a":1}`)
		return
	case *apiextensions.JSONSchemaPropsOrBool:
		at.Allows = true
		if depth < 6 && f.Intn(2) == 0 {
			at.Schema = &apiextensions.JSONSchemaProps{Type: "string"}
		}
		return
	case *apiextensions.JSONSchemaPropsOrArray:
		at.Schema = &apiextensions.JSONSchemaProps{Type: "string"}
		return
	case *apiextensions.JSONSchemaPropsOrStringArray:
		at.Property = []string{"a"}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(f.word())
	case reflect.Bool:
		v.SetBool(f.Intn(2) == 0)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(int64(f.Intn(5) - 2))
	case reflect.Uint8:
		v.SetUint(uint64(f.Intn(256)))
	case reflect.Float64:
		v.SetFloat(float64(f.Intn(9)) / 4)
	case reflect.Pointer:
		if depth < 12 && f.Float64() < f.chance {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth+1)
		}
	case reflect.Slice:
		if depth < 12 && f.Float64() < f.chance {
			n := f.Intn(2) + 1
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				f.fill(v.Index(i), depth+1)
			}
		}
	case reflect.Map:
		if depth < 12 && f.Float64() < f.chance {
			v.Set(reflect.MakeMap(v.Type()))
			value := reflect.New(v.Type().Elem()).Elem()
			f.fill(value, depth+1)
			key := reflect.New(v.Type().Key()).Elem()
			key.SetString("k" + f.word())
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && (f.Float64() < f.chance || v.Type().Field(i).Anonymous) {
				f.fill(v.Field(i), depth+1)
			}
		}
	}
}

func main() {
	out := flag.String("out", "samples.json.gz", "the file to write")
	seed := flag.Int64("seed", 1, "of chance")
	count := flag.Int("count", 3, "objects of each kind")
	flag.Parse()
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensions.AddToScheme} {
		if err := add(types); err != nil {
			log.Fatal(err)
		}
	}
	var names []string
	kinds := map[string]reflect.Type{}
	for gvk, t := range types.AllKnownTypes() {
		stable := gvk.Version == "v1" || gvk.Version == "v2"
		served := groups[gvk.Group] && stable && !strings.HasSuffix(gvk.Kind, "Options")
		if !served || strings.HasSuffix(gvk.Kind, "List") || gvk.Kind == "WatchEvent" {
			continue
		}
		name := gvk.GroupVersion().String() + " " + gvk.Kind
		kinds[name] = t
		names = append(names, name)
	}
	sort.Strings(names)
	kinds["coordination.k8s.io/v1 DeleteOptions"] = reflect.TypeFor[meta.DeleteOptions]()
	names = append(names, "coordination.k8s.io/v1 DeleteOptions")
	codec := protobuf.NewSerializer(types, types)
	f := filler{rand.New(rand.NewSource(*seed)), 0}
	var samples []sample
	for _, name := range names {
		version, kind, _ := strings.Cut(name, " ")
		for n := range *count {
			f.chance = float64(n+1) / float64(*count+1)
			v := reflect.New(kinds[name])
			f.fill(v.Elem(), 0)
			object := v.Interface().(runtime.Object)
			object.GetObjectKind().SetGroupVersionKind(fromVersion(version, kind))
			var body bytes.Buffer
			if err := codec.Encode(object, &body); err != nil {
				log.Fatalf("%s: %v", name, err)
			}
			// As a server sees it, which reads the message first.
			again := reflect.New(kinds[name]).Interface().(runtime.Object)
			if _, _, err := codec.Decode(body.Bytes(), nil, again); err != nil {
				log.Fatalf("%s: %v", name, err)
			}
			again.GetObjectKind().SetGroupVersionKind(fromVersion(version, kind))
			text, err := json.Marshal(again)
			if err != nil {
				log.Fatalf("%s: %v", name, err)
			}
			samples = append(samples, sample{body.Bytes(), text})
		}
	}
	var packed bytes.Buffer
	zip, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err := json.NewEncoder(zip).Encode(samples); err != nil {
		log.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*out, packed.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(samples), "objects,", packed.Len(), "bytes packed")
}

func fromVersion(version, kind string) (gvk schema.GroupVersionKind) {
	group, rest, found := strings.Cut(version, "/")
	if !found {
		group, rest = "", version
	}
	return schema.GroupVersionKind{Group: group, Version: rest, Kind: kind}
}
