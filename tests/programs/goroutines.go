// goroutines: calls of work(), up to 50 deep, in goroutines that change threads in the call, on stacks that grow. Some are
// left by a panic that is recovered, some by runtime.Goexit, and memory of goroutines that have ended is used again.
// Prints how many began and returned, the time in them as they and as their callers see it, and calls stop() while three
// goroutines are five calls deep.
package main

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	panics = iota
	leaves
	hangs
	returns
)

var entered, returned, inside, outside int64

//go:noinline
func work(n, how int, name string) int {
	began := time.Now()
	atomic.AddInt64(&entered, 1)
	var room [64]byte
	room[n&63] = byte(n)
	if n > 0 {
		called(n-1, how, name)
	} else {
		switch how {
		case panics:
			panic(name)
		case leaves:
			runtime.Goexit()
		case hangs:
			select {}
		}
		runtime.Gosched()
	}
	atomic.AddInt64(&returned, 1)
	atomic.AddInt64(&inside, int64(time.Since(began)))
	return n ^ how ^ int(room[n&63]) ^ n
}

func called(n, how int, name string) {
	began := time.Now()
	if work(n, how, name) != n^how {
		panic("wrong")
	}
	atomic.AddInt64(&outside, int64(time.Since(began)))
}

func caught(n int) {
	defer func() { recover() }()
	called(n, panics, "panics")
}

func goroutines(count int, run func(int)) {
	var done sync.WaitGroup
	for i := 0; i < count; i++ {
		done.Add(1)
		go func(i int) {
			defer done.Done()
			run(i)
		}(i)
	}
	done.Wait()
}

//go:noinline
func stop() { println("stopped") }

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	rounds, _ := strconv.Atoi(os.Args[2])
	goroutines(count, func(i int) {
		for round := 0; round < rounds; round++ {
			called((i+round)%50, returns, "returns")
		}
		caught(i % 7)
	})
	for wave := 0; wave < 10; wave++ {
		goroutines(20, func(i int) {
			called((i+wave)%9, returns, "wave")
			if i%2 == 0 {
				called((i+wave)%7+1, leaves, "leaves")
			}
		})
	}
	before := entered
	for i := 0; i < 3; i++ {
		go called(4, hangs, "hangs")
	}
	for atomic.LoadInt64(&entered) != before+15 {
		time.Sleep(time.Millisecond)
	}
	print("entered=", entered, " returned=", returned, " inside=", inside, " outside=", outside, "\n")
	stop()
	time.Sleep(time.Hour)
}
