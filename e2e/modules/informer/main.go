// Informers of client-go as anybody runs them, on a server under test. One line of JSON tells each
// thing that happened, in order: what was asked (`watch`, `list`), what the server sent (`event`), how it
// failed (`broken`), what a handler was told (`add`, `update`, `delete`), and, once standard input ends, what is held (`store`).
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

type line struct {
	What string `json:"what"`
	Kind string `json:"kind,omitempty"`
	// Which of the program's watches.
	Watch uint64 `json:"watch,omitempty"`
	// Of an event: ADDED and so on.
	Type string `json:"type,omitempty"`
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
	// Of an object, or where a watch begins.
	Version string `json:"version,omitempty"`
	// That the watch begins with what there is; of a bookmark, that all of it was sent.
	Initial bool `json:"initial,omitempty"`
	// Of a list.
	Items []line `json:"items,omitempty"`
}

var output sync.Mutex

func tell(l line) {
	text, err := json.Marshal(l)
	if err != nil {
		fail(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}

// tap tells what goes through it: requests for lists and watches, and the events that come back.
type tap struct {
	next http.RoundTripper
	last atomic.Uint64
}

func (t *tap) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	asked := line{
		What: "watch", Kind: path.Base(request.URL.Path), Version: query.Get("resourceVersion"),
		Initial: query.Get("sendInitialEvents") == "true",
	}
	watches := query.Get("watch") == "true"
	response, err := t.next.RoundTrip(request)
	if watches && (err != nil || response.StatusCode >= http.StatusInternalServerError) {
		asked.What = "broken"
		tell(asked)
	}
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	if watches {
		asked.Watch = t.last.Add(1)
		tell(asked)
		response.Body = &events{ReadCloser: response.Body, of: asked}
		return response, nil
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	tell(list(asked.Kind, body))
	return response, nil
}

// object is what is told of one.
type object struct {
	Metadata struct {
		Name            string            `json:"name"`
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
}

func list(kind string, body []byte) line {
	var listed struct {
		object
		Items []object `json:"items"`
	}
	if err := json.Unmarshal(body, &listed); err != nil {
		fail(fmt.Errorf("a list of %s is not JSON: %w", kind, err))
	}
	told := line{What: "list", Kind: kind, Version: listed.Metadata.ResourceVersion}
	for _, item := range listed.Items {
		found := item.Metadata
		told.Items = append(told.Items, line{Name: found.Name, UID: found.UID, Version: found.ResourceVersion})
	}
	return told
}

// events is the body of a watch; each whole line that passes is told, and that it ends.
type events struct {
	io.ReadCloser
	of   line
	rest []byte
}

func (e *events) Read(into []byte) (int, error) {
	n, err := e.ReadCloser.Read(into)
	e.rest = append(e.rest, into[:n]...)
	for {
		end := bytes.IndexByte(e.rest, '\n')
		if end < 0 {
			if err != nil {
				broken := e.of
				broken.What = "broken"
				tell(broken)
			}
			return n, err
		}
		e.tell(e.rest[:end])
		e.rest = e.rest[end+1:]
	}
}

func (e *events) tell(text []byte) {
	var event struct {
		Type   string `json:"type"`
		Object object `json:"object"`
	}
	if err := json.Unmarshal(text, &event); err != nil {
		fail(fmt.Errorf("an event of %s is not JSON: %w", e.of.Kind, err))
	}
	found := event.Object.Metadata
	tell(line{
		What: "event", Kind: e.of.Kind, Watch: e.of.Watch, Type: event.Type,
		Name: found.Name, UID: found.UID, Version: found.ResourceVersion,
		Initial: found.Annotations["k8s.io/initial-events-end"] == "true",
	})
}

func follow(kind string, informer cache.SharedIndexInformer) error {
	say := func(what string, object any) {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			fail(err)
		}
		tell(line{
			What: what, Kind: kind, Name: accessor.GetName(),
			UID: string(accessor.GetUID()), Version: accessor.GetResourceVersion(),
		})
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { say("add", object) },
		UpdateFunc: func(_, object any) { say("update", object) },
		DeleteFunc: func(object any) { say("delete", object) },
	})
	stores = append(stores, func() {
		for _, object := range informer.GetStore().List() {
			say("store", object)
		}
	})
	return err
}

var stores []func()

func main() {
	kubeconfig := flag.String("kubeconfig", "", "where the server is")
	namespace := flag.String("namespace", "", "what to follow")
	plain := flag.Bool("json", false, "ask for JSON where a server would answer something shorter")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fail(err)
	}
	if *plain {
		config.ContentType = "application/json"
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &tap{next: next} })
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		fail(err)
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		fail(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithNamespace(*namespace))
	custom := dynamicinformer.NewFilteredDynamicSharedInformerFactory(untyped, 0, *namespace, nil)
	works := schema.GroupVersionResource{Group: "work.karmada.io", Version: "v1alpha1", Resource: "works"}
	for kind, informer := range map[string]cache.SharedIndexInformer{
		"configmaps": factory.Core().V1().ConfigMaps().Informer(),
		"leases":     factory.Coordination().V1().Leases().Informer(),
		"works":      custom.ForResource(works).Informer(),
	} {
		if err := follow(kind, informer); err != nil {
			fail(err)
		}
	}
	stop := make(chan struct{})
	factory.Start(stop)
	custom.Start(stop)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		fail(err)
	}
	for _, store := range stores {
		store()
	}
	tell(line{What: "done"})
}
