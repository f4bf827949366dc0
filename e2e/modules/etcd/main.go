// Command etcd is the released etcd server; its own main lies in a module the proxy lacks.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
