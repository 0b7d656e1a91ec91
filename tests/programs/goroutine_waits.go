// Goroutines that wait, each part for a known reason, and what they measure of it themselves in nanoseconds.
package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

var own [3]int64

func measure(part int, wait func()) {
	begin := time.Now()
	wait()
	atomic.AddInt64(&own[part], int64(time.Since(begin)))
}

// Three goroutines and a mutex that each holds for 20 ms.
func fight(mutex *sync.Mutex, end time.Time) {
	for time.Now().Before(end) {
		measure(0, mutex.Lock)
		time.Sleep(20 * time.Millisecond)
		mutex.Unlock()
	}
}

// A producer whose consumer needs 10 ms for each.
func produce(full chan int, end time.Time) {
	for i := 0; time.Now().Before(end); i++ {
		measure(1, func() { full <- i })
	}
	close(full)
}

func consume(full chan int) {
	for range full {
		time.Sleep(10 * time.Millisecond)
	}
}

// Four workers for whom there is work every 50 ms.
func work(jobs chan int) {
	for range jobs {
		time.Sleep(time.Millisecond)
	}
}

func employ(jobs chan int, end time.Time) {
	for i := 0; time.Now().Before(end); i++ {
		time.Sleep(50 * time.Millisecond)
		jobs <- i
	}
	close(jobs)
}

// A client whose server answers after 15 ms.
func serve(listener net.Listener) {
	connection, err := listener.Accept()
	if err != nil {
		return
	}
	letter := make([]byte, 1)
	for {
		if _, err := connection.Read(letter); err != nil {
			return
		}
		time.Sleep(15 * time.Millisecond)
		connection.Write(letter)
	}
}

func ask(address string, end time.Time) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		panic(err)
	}
	letter := []byte("x")
	for time.Now().Before(end) {
		connection.Write(letter)
		measure(2, func() { connection.Read(letter) })
	}
	connection.Close()
}

func main() {
	var group sync.WaitGroup
	start := func(run func()) {
		group.Add(1)
		go func() {
			defer group.Done()
			run()
		}()
	}
	milliseconds, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	end := time.Now().Add(time.Duration(milliseconds) * time.Millisecond)
	var mutex sync.Mutex
	for i := 0; i < 3; i++ {
		start(func() { fight(&mutex, end) })
	}
	full := make(chan int)
	start(func() { produce(full, end) })
	start(func() { consume(full) })
	jobs := make(chan int, 1)
	for i := 0; i < 4; i++ {
		start(func() { work(jobs) })
	}
	start(func() { employ(jobs, end) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	start(func() { serve(listener) })
	start(func() { ask(listener.Addr().String(), end) })
	// Two that wait for each other all the time.
	there, back := make(chan bool), make(chan bool)
	go func() {
		for range there {
			back <- true
		}
	}()
	for i := 0; i < 1000; i++ {
		there <- true
		<-back
	}
	close(there)
	// Many that end at once.
	for i := 0; i < 500; i++ {
		ended := make(chan bool)
		go close(ended)
		<-ended
	}
	group.Wait()
	fmt.Println("mutex", own[0], "send", own[1], "read", own[2])
}
