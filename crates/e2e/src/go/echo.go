// Sends bytes there and back and checks them.
package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"strconv"
)

func main() {
	address := net.JoinHostPort(os.Args[2], os.Args[3])
	if os.Args[1] == "server" {
		serve(address)
	}
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	ask(address, count)
}

func serve(address string) {
	listener, err := net.Listen("tcp", address)
	check(err)
	for {
		connection, err := listener.Accept()
		check(err)
		go func() {
			defer connection.Close()
			_, _ = io.Copy(connection, connection)
		}()
	}
}

func ask(address string, count int) {
	connection, err := net.Dial("tcp", address)
	check(err)
	sent := make([]byte, count)
	rand.New(rand.NewSource(1)).Read(sent)
	go func() {
		_, err := connection.Write(sent)
		check(err)
		check(connection.(*net.TCPConn).CloseWrite())
	}()
	got, err := io.ReadAll(connection)
	check(err)
	if !bytes.Equal(sent, got) {
		check(fmt.Errorf("%d bytes were sent, %d others came", len(sent), len(got)))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
