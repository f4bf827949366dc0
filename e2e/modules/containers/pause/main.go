// Command pause waits until it is told to end: it holds the sandbox of a pod, and is the workload
// of tests on the real node, where no image can be pulled.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	fmt.Println("waiting")
	// The first process of a pod reaps what others leave behind.
	signal.Ignore(syscall.SIGCHLD)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
}
