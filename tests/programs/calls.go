// calls: functions of Go with parameters of all kinds; and grow(), which needs more stack the deeper it is called, and
// is called 50 times in each of four goroutines, 101 levels deep; and calls that are inlined, whose stack it prints. It
// imports what every program has, so that it is compiled soon.
package main

import "runtime"

type Inner struct {
	A int32
	B string
}

type Order struct {
	ID    int64
	Name  string
	Price float64
}

type Shape interface{ Area() float64 }
type Square struct{ side float64 }

func (s *Square) Area() float64 { return s.side * s.side }

type Refusal struct{ what string }

func (r *Refusal) Error() string { return r.what }

//go:noinline
func greet(name string, n int, loud bool) (string, error) {
	if n < 0 {
		return "", &Refusal{"negative"}
	}
	if loud {
		return name + "!", nil
	}
	return name + string(rune('0'+n)), nil
}

//go:noinline
func (o *Order) Total(k uint8, factor float64, rate int16) int64 {
	if factor < 0 {
		panic("factor")
	}
	return o.ID*int64(k) + int64(rate)
}

//go:noinline
func small(in Inner, s []int, shape Shape, call func(int) int, e [1]int32, last string) int {
	return int(in.A) + len(s) + call(len(last)) + int(shape.Area()) + int(e[0])
}

//go:noinline
func many(a, b, c, d, e, f, g, h, i, j, k int64, s string) int64 {
	return a + b + c + d + e + f + g + h + i + j + k + int64(len(s))
}

//go:noinline
func blank(_ string, n int, _ int, m uint8) int { return n + int(m) }

type Point struct{ X, Y float64 }
type Mixed struct {
	N     int32
	Price float64
	Name  string
	At    Point
	K     uint8
}
type Pair struct {
	A int
	B string
}

//go:noinline
func mixed(m Mixed, at Point, n int, c complex128, one [1]Mixed) float64 {
	return m.Price*float64(n) + at.X + real(c) + one[0].Price
}

//go:noinline
func both(n int, price float64) (Mixed, error) { return Mixed{N: int32(n), Price: price, Name: "both", K: 9}, nil }

//go:noinline
func larger[T int | string](a, b T) T {
	if a > b {
		return a
	}
	return b
}

//go:noinline
func (p Pair) plus(n int) Pair { return Pair{p.A + n, p.B + "!"} }

//go:noinline
func vary(first int, rest ...string) int { return first + len(rest) }

//go:noinline
func floats(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p float64, z int) float64 { return a + p + float64(z) }

//go:noinline
func apply(f func(int, string) int) int { return f(7, "closed") }

//go:noinline
func grow(n int) int {
	var room [256]byte
	room[n] = byte(n)
	if n == 0 {
		return 0
	}
	return grow(n-1) + int(room[n]) - n + 1
}

//go:noinline
func leaf(n int) int {
	places := make([]uintptr, 32)
	frames := runtime.CallersFrames(places[:runtime.Callers(2, places)])
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		println("called by", frame.Function, frame.Line)
	}
	return n + 1
}

func inner(n int) int { return leaf(n) * 2 }
func middle(n int) int {
	return inner(n) + 1
}

type Counter struct{ n int }

func (c *Counter) add(n int) { c.n += middle(n) }

//go:noinline
func outer(c *Counter) int {
	c.add(5)
	return c.n
}

func main() {
	done := make(chan int)
	for worker := 0; worker < 4; worker++ {
		go func() {
			for i := 0; i < 50; i++ {
				if grow(100) != 100 {
					panic("grow")
				}
			}
			done <- 1
		}()
	}
	for worker := 0; worker < 4; worker++ {
		<-done
	}
	o := &Order{42, "order-π", 1.5}
	s, _ := greet("world", 3, false)
	loud, _ := greet("loud", 4, true)
	greet("refused", -1, false)
	total := o.Total(3, 2.5, -4)
	sum := small(Inner{-9, "in"}, []int{1, 2, 3}, &Square{2}, func(i int) int { return i }, [1]int32{77}, "the last")
	at := Point{1, 2}
	price := mixed(Mixed{-5, 1.5, "mixed", at, 77}, at, 42, complex(1, 2), [1]Mixed{{11, 2.5, "one", at, 78}})
	item, _ := both(8, price)
	base := larger(3, 4) + len(larger("lesser", "more")) + Pair{5, "pair"}.plus(3).A + vary(1, "x", "yy")
	price += floats(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 99)
	base += apply(func(i int, text string) int { return i + base + len(text) })
	println(int(price), item.Name, base)
	println(s, loud, total, sum, many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, "stacked"), blank("x", 5, 9, 7), outer(&Counter{}))
}
