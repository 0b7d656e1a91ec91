// server: a server of requests that are lines, whose handlers compute. Prints its process id; for a line with a number it
// asks itself as often, in three connections, sends itself signals meanwhile, and prints the stacks in which it computed,
// as the runtime has them: lists of functions, innermost first.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"sort"
	"strings"
	"sync"
	"syscall"
)

var stacks sync.Map

//go:noinline
func burn(rounds int) int {
	places := make([]uintptr, 100)
	frames := runtime.CallersFrames(places[:runtime.Callers(1, places)])
	names := []string{}
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		names = append(names, frame.Function)
	}
	stacks.Store(strings.Join(names, ";"), names)
	return work(rounds * 300000)
}

//go:noinline
func work(rounds int) int {
	sum := 0
	for i := 0; i < rounds; i++ {
		sum = (sum*31 + i) % 1000003
	}
	return sum
}

type Shop struct{ sum int }

func (s *Shop) price() int { return burn(1) + s.sum }
func (s *Shop) total() int {
	items := []int{3, 1, 2}
	sort.Slice(items, func(i, j int) bool { return items[i] < items[j] && burn(1) > 0 })
	return items[0]
}

//go:noinline
func deep(n int) int {
	if n == 0 {
		return burn(2)
	}
	return deep(n-1) + 1
}

type Handler interface{ handle() int }

func (s *Shop) handle() int { return s.price() }

func deferred() (sum int) {
	defer func() {
		if recover() != nil {
			sum = burn(1)
		}
	}()
	panic("recovered")
}

func called(connection net.Conn) {
	lines := bufio.NewScanner(connection)
	shop := &Shop{}
	for lines.Scan() {
		var handler Handler = shop
		sum := 0
		switch lines.Text() {
		case "0":
			sum = deep(5)
		case "1":
			sum = shop.total()
		case "2":
			sum = handler.handle()
		case "3":
			sum = deferred()
		}
		fmt.Fprintln(connection, sum)
	}
}

func ask(address string, count int, done *sync.WaitGroup) {
	defer done.Done()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		panic(err)
	}
	answers := bufio.NewScanner(connection)
	for i := 0; i < count; i++ {
		fmt.Fprintln(connection, i%4)
		syscall.Kill(os.Getpid(), syscall.SIGUSR1)
		answers.Scan()
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1)
	go func() {
		for {
			connection, err := listener.Accept()
			if err == nil {
				go func() { called(connection) }()
			}
		}
	}()
	fmt.Println(os.Getpid())
	count := 0
	fmt.Scan(&count)
	var done sync.WaitGroup
	for i := 0; i < 3; i++ {
		done.Add(1)
		go ask(listener.Addr().String(), count/3, &done)
	}
	done.Wait()
	found := [][]string{}
	stacks.Range(func(_, names any) bool { found = append(found, names.([]string)); return true })
	json.NewEncoder(os.Stdout).Encode(found)
}
