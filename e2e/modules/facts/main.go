// Command facts writes hub/src/apiserver/schema/builtin/kubernetes.json.gz: what the types of Kubernetes are,
// without a word of their documentation.
//
// It is run by hand, against a lab of the same version (e2e/lab up --bare --members 0):
//
//	cd e2e/modules/facts && go run . -kubeconfig ../../../target/lab/hub.kubeconfig \
//	    -out ../../../hub/src/apiserver/schema/builtin/kubernetes.json.gz
//
// Three sources are joined: discovery and the columns of tables as the server tells them, its OpenAPI
// v3 (list types, merge keys, enums, defaults, what is required), and the Go types, whose tags say
// what OpenAPI does not: which empty fields are written, what numbers fit, and the field numbers of
// protobuf. Keys are short because there are thousands of them; hub/src/apiserver/schema/builtin.rs names them.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"reflect"
	"sort"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// served is what the built-in API server knows, by group, in the words of discovery.
var served = map[string][]string{
	"": {
		"configmaps", "endpoints", "events", "limitranges", "namespaces", "nodes",
		"persistentvolumeclaims", "persistentvolumes", "pods", "podtemplates",
		"replicationcontrollers", "resourcequotas", "secrets", "serviceaccounts", "services",
	},
	"apps": {"*"}, "events.k8s.io": {"*"}, "authentication.k8s.io": {"*"},
	"authorization.k8s.io": {"*"}, "autoscaling": {"*"}, "batch": {"*"},
	"certificates.k8s.io": {"*"}, "policy": {"*"}, "rbac.authorization.k8s.io": {"*"},
	"storage.k8s.io": {"*"}, "apiextensions.k8s.io": {"*"}, "scheduling.k8s.io": {"*"},
	"coordination.k8s.io": {"*"}, "node.k8s.io": {"*"}, "discovery.k8s.io": {"*"},
	"networking.k8s.io": {"ingressclasses", "ingresses", "networkpolicies"},
}

// left are subresources of pods, nodes and services that need a machine behind them.
var left = map[string]bool{
	"attach": true, "binding": true, "exec": true, "log": true,
	"portforward": true, "proxy": true, "resize": true, "ephemeralcontainers": true,
}

type field struct {
	Name     string          `json:"n"`
	Type     string          `json:"t"`
	Omit     string          `json:"o,omitempty"` // "e" omitempty, "z" omitzero
	Pointer  bool            `json:"p,omitempty"`
	Proto    string          `json:"pb,omitempty"` // numbers along embedded structs, then the wire type
	Required bool            `json:"r,omitempty"`
	Default  json.RawMessage `json:"d,omitempty"`
	Enum     []string        `json:"e,omitempty"`
	ItemEnum []string        `json:"ie,omitempty"`
	ListType string          `json:"lt,omitempty"`
	ListKeys []string        `json:"lk,omitempty"`
	MapType  string          `json:"mt,omitempty"`
	Strategy string          `json:"ps,omitempty"`
	MergeKey string          `json:"mk,omitempty"`
}

type definition struct {
	Name    string          `json:"n"`
	Go      string          `json:"g"`
	MapType string          `json:"mt,omitempty"`
	Unions  json.RawMessage `json:"u,omitempty"`
	Fields  []field         `json:"f"`
}

type subresource struct {
	Name  string   `json:"n"`
	Kind  []string `json:"k"` // group, version, kind
	Verbs []string `json:"v"`
}

type column struct {
	Name     string `json:"n"`
	Type     string `json:"t"`
	Format   string `json:"f,omitempty"`
	Priority int32  `json:"p,omitempty"`
}

type kind struct {
	Group        string        `json:"g,omitempty"`
	Version      string        `json:"v"`
	Kind         string        `json:"k"`
	Plural       string        `json:"p"`
	Singular     string        `json:"s"`
	Short        []string      `json:"sh,omitempty"`
	Categories   []string      `json:"c,omitempty"`
	Namespaced   bool          `json:"ns,omitempty"`
	Verbs        []string      `json:"vb"`
	Subresources []subresource `json:"sub,omitempty"`
	Columns      []column      `json:"col,omitempty"`
	Definition   int           `json:"d"`
}

type facts struct {
	Version     json.RawMessage `json:"version"`
	Kinds       []kind          `json:"kinds"`
	Named       map[string]int  `json:"named"` // other kinds with a body: group/version/kind
	Definitions []definition    `json:"definitions"`
}

// openapi is what of a schema is read.
type openapi struct {
	Required   []string            `json:"required"`
	Properties map[string]*openapi `json:"properties"`
	Items      *openapi            `json:"items"`
	Default    json.RawMessage     `json:"default"`
	Enum       []string            `json:"enum"`
	ListType   string              `json:"x-kubernetes-list-type"`
	ListKeys   []string            `json:"x-kubernetes-list-map-keys"`
	MapType    string              `json:"x-kubernetes-map-type"`
	Strategy   string              `json:"x-kubernetes-patch-strategy"`
	MergeKey   string              `json:"x-kubernetes-patch-merge-key"`
	Unions     json.RawMessage     `json:"x-kubernetes-unions"`
}

type server struct{ client *rest.RESTClient }

func (s server) get(path, accept string, into any) {
	body, err := s.client.Get().AbsPath(path).SetHeader("Accept", accept).DoRaw(context.Background())
	if err != nil {
		log.Fatalf("%s: %v", path, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		log.Fatalf("%s: %v", path, err)
	}
}

// builder collects definitions as they are reached.
type builder struct {
	seen   map[reflect.Type]int
	found  []definition
	schema map[string]*openapi
}

// leaves are types that read and write themselves.
var leaves = map[reflect.Type]string{
	reflect.TypeFor[meta.Time]():                                  "time",
	reflect.TypeFor[meta.MicroTime]():                             "microtime",
	reflect.TypeFor[meta.Duration]():                              "duration",
	reflect.TypeFor[resource.Quantity]():                          "quantity",
	reflect.TypeFor[intstr.IntOrString]():                         "intorstring",
	reflect.TypeFor[runtime.RawExtension]():                       "raw",
	reflect.TypeFor[meta.FieldsV1]():                              "fields",
	reflect.TypeFor[apiextensions.JSON]():                         "json",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrBool]():        "propsorbool",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrArray]():       "propsorarray",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrStringArray](): "propsorstrings",
}

// name is the one under which OpenAPI has a Go type.
func name(t reflect.Type) string {
	host, rest, _ := strings.Cut(t.PkgPath(), "/")
	labels := strings.Split(host, ".")
	for i, j := 0, len(labels)-1; i < j; i, j = i+1, j-1 {
		labels[i], labels[j] = labels[j], labels[i]
	}
	return strings.Join(labels, ".") + "." + strings.ReplaceAll(rest, "/", ".") + "." + t.Name()
}

func (b *builder) expression(t reflect.Type) string {
	if leaf, ok := leaves[t]; ok {
		return leaf
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.expression(t.Elem())
	case reflect.Struct:
		return fmt.Sprintf("#%d", b.define(t))
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + b.expression(t.Elem())
	case reflect.Map:
		return "{}" + b.expression(t.Elem())
	default:
		if t.PkgPath() != "" {
			return t.Kind().String() + "=" + t.String()
		}
		return t.Kind().String()
	}
}

func (b *builder) define(t reflect.Type) int {
	if at, ok := b.seen[t]; ok {
		return at
	}
	at := len(b.found)
	b.seen[t] = at
	b.found = append(b.found, definition{Name: name(t), Go: t.String()})
	known := b.schema[name(t)]
	if known == nil {
		log.Printf("OpenAPI has no %s", name(t))
		known = &openapi{}
	}
	fields := b.fields(t, "", known)
	sort.Slice(fields, func(i, j int) bool { return fields[i].Name < fields[j].Name })
	b.found[at].MapType = known.MapType
	b.found[at].Unions = known.Unions
	b.found[at].Fields = fields
	return at
}

func (b *builder) fields(t reflect.Type, proto string, known *openapi) []field {
	all := []field{}
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		parts := strings.Split(f.Tag.Get("json"), ",")
		number, wire := "", ""
		if tag := strings.Split(f.Tag.Get("protobuf"), ","); len(tag) > 1 {
			number, wire = tag[1], tag[0]
		}
		if parts[0] == "" && f.Anonymous {
			inner := b.fields(f.Type, proto+number+".", known)
			for i := range inner {
				// TypeMeta is no part of a message; it travels in the envelope.
				if number == "" {
					inner[i].Proto = ""
				}
			}
			all = append(all, inner...)
			continue
		}
		if parts[0] == "-" || parts[0] == "" {
			continue
		}
		one := field{Name: parts[0], Type: b.expression(f.Type), Pointer: f.Type.Kind() == reflect.Pointer}
		for _, option := range parts[1:] {
			switch option {
			case "omitempty":
				one.Omit += "e"
			case "omitzero":
				one.Omit += "z"
			}
		}
		if number != "" {
			one.Proto = proto + number + wire[:1]
		}
		if p := known.Properties[one.Name]; p != nil {
			one.Default, one.Enum = p.Default, p.Enum
			one.ListType, one.ListKeys, one.MapType = p.ListType, p.ListKeys, p.MapType
			one.Strategy, one.MergeKey = p.Strategy, p.MergeKey
			if p.Items != nil {
				one.ItemEnum = p.Items.Enum
			}
		}
		for _, required := range known.Required {
			one.Required = one.Required || required == one.Name
		}
		all = append(all, one)
	}
	return all
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "of the server that is read")
	out := flag.String("out", "kubernetes.json.gz", "the file to write")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		log.Fatal(err)
	}
	api := server{client}
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensions.AddToScheme} {
		if err := add(types); err != nil {
			log.Fatal(err)
		}
	}

	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	api.get("/openapi/v3", "application/json", &index)
	b := &builder{seen: map[reflect.Type]int{}, schema: map[string]*openapi{}}
	for path := range index.Paths {
		var document struct {
			Components struct {
				Schemas map[string]*openapi `json:"schemas"`
			} `json:"components"`
		}
		if strings.HasPrefix(path, "api") {
			api.get("/openapi/v3/"+path, "application/json", &document)
		}
		for name, schema := range document.Components.Schemas {
			b.schema[name] = schema
		}
	}

	written := facts{Named: map[string]int{}}
	api.get("/version", "application/json", &written.Version)
	body := func(g, v, k string) (int, bool) {
		t, ok := types.AllKnownTypes()[schema.GroupVersionKind{Group: g, Version: v, Kind: k}]
		if !ok {
			return 0, false
		}
		return b.define(t), true
	}
	for _, root := range []string{"/api", "/apis"} {
		var groups struct {
			Items []struct {
				Metadata struct{ Name string }
				Versions []struct {
					Version   string
					Resources []struct {
						Resource, SingularResource, Scope string
						ResponseKind                      meta.GroupVersionKind
						Verbs, ShortNames, Categories     []string
						Subresources                      []struct {
							Subresource  string
							ResponseKind meta.GroupVersionKind
							Verbs        []string
						}
					}
				}
			}
		}
		api.get(root, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", &groups)
		for _, group := range groups.Items {
			g := group.Metadata.Name
			for _, version := range group.Versions {
				for _, r := range version.Resources {
					wanted := false
					for _, plural := range served[g] {
						wanted = wanted || plural == "*" || plural == r.Resource
					}
					if !wanted {
						continue
					}
					k := kind{
						Group: g, Version: version.Version, Kind: r.ResponseKind.Kind, Plural: r.Resource,
						Singular: r.SingularResource, Short: r.ShortNames, Categories: r.Categories,
						Namespaced: r.Scope == "Namespaced", Verbs: r.Verbs,
					}
					var ok bool
					if k.Definition, ok = body(g, k.Version, k.Kind); !ok {
						log.Fatalf("no Go type for %s/%s %s", g, k.Version, k.Kind)
					}
					for _, s := range r.Subresources {
						if left[s.Subresource] {
							continue
						}
						on := subresource{Name: s.Subresource, Verbs: s.Verbs}
						on.Kind = []string{s.ResponseKind.Group, s.ResponseKind.Version, s.ResponseKind.Kind}
						if on.Kind[1] == "" {
							on.Kind[0], on.Kind[1] = g, k.Version
						}
						if on.Kind[2] != k.Kind {
							if at, ok := body(on.Kind[0], on.Kind[1], on.Kind[2]); ok {
								written.Named[strings.Join(on.Kind, "/")] = at
							}
						}
						k.Subresources = append(k.Subresources, on)
					}
					for _, verb := range r.Verbs {
						if verb == "list" {
							k.Columns = columns(api, root, g, k)
						}
					}
					written.Kinds = append(written.Kinds, k)
				}
			}
		}
	}
	for _, k := range []string{"DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions", "Status"} {
		t := map[string]reflect.Type{
			"DeleteOptions": reflect.TypeFor[meta.DeleteOptions](), "CreateOptions": reflect.TypeFor[meta.CreateOptions](),
			"UpdateOptions": reflect.TypeFor[meta.UpdateOptions](), "PatchOptions": reflect.TypeFor[meta.PatchOptions](),
			"Status": reflect.TypeFor[meta.Status](),
		}[k]
		written.Named["meta.k8s.io/v1/"+k] = b.define(t)
	}
	b.define(reflect.TypeFor[meta.ListMeta]())
	written.Definitions = b.found

	plain, err := json.Marshal(written)
	if err != nil {
		log.Fatal(err)
	}
	var packed bytes.Buffer
	zip, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if _, err := zip.Write(plain); err != nil {
		log.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*out, packed.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
	log.Printf("%d kinds, %d definitions, %d bytes, %d packed", len(written.Kinds), len(b.found), len(plain), packed.Len())
}

// columns are those of a table, whose texts are left out.
func columns(api server, root, group string, k kind) []column {
	path := root + "/"
	if group != "" {
		path += group + "/"
	}
	var table struct {
		ColumnDefinitions []meta.TableColumnDefinition `json:"columnDefinitions"`
	}
	api.get(path+k.Version+"/"+k.Plural, "application/json;as=Table;v=v1;g=meta.k8s.io", &table)
	var all []column
	for _, c := range table.ColumnDefinitions {
		all = append(all, column{c.Name, c.Type, c.Format, c.Priority})
	}
	return all
}
