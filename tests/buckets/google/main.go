// A stand-in for Google Cloud Storage that keeps everything in memory.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

func main() {
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		NoListener: true,
		PublicHost: "127.0.0.1",
	})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "listening on %s\n", listener.Addr())
	log.Fatal(http.Serve(listener, server.HTTPHandler()))
}
