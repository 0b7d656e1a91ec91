//! Generic functions, closures, a panic and async tasks with an executor of our own; each leaf prints its backtrace.
use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

#[inline(never)]
fn leaf(n: u64) -> u64 {
    extern "C" { fn getsid(pid: i32) -> i32; }
    unsafe { getsid(1_000_000 + n as i32) };
    if std::env::var_os("SAY").is_some() {
        println!("backtrace {}\n{}", n, Backtrace::force_capture());
    }
    black_box(n)
}

trait Shape { fn area(&self, n: u64) -> u64; }
struct Square<T>(T);
impl<T: Into<u64> + Copy> Shape for Square<T> {
    #[inline(never)]
    fn area(&self, n: u64) -> u64 { let side: u64 = self.0.into(); black_box(leaf(n) + side * side) }
}
impl<T: Into<u64> + Copy> Square<T> {
    async fn ask(&self) -> u64 {
        Yield(false).await;
        let ordinary = |n: u64| leaf(n) + 1;
        black_box(ordinary(self.0.into()))
    }
}

struct Table<K, V> { rows: BTreeMap<K, V> }
impl<K: Ord + Clone, V> Table<K, V> {
    #[inline(never)]
    fn each<F: FnMut(&K, &V) -> u64>(&self, mut f: F) -> u64 {
        let mut sum = 0;
        for (k, v) in &self.rows { sum += black_box(f(k, v)); }
        black_box(sum)
    }
}

struct Yield(bool);
impl Future for Yield {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<()> {
        if self.0 { Poll::Ready(()) } else { self.0 = true; Poll::Pending }
    }
}

#[inline(never)]
async fn fetch<T: Into<u64>>(n: T) -> u64 {
    Yield(false).await;
    let r = leaf(n.into());
    Yield(false).await;
    r
}
async fn handle(id: u32) -> u64 {
    let first = fetch(id).await;
    let task = async move { fetch(first as u8).await + 1 };
    task.await
}

fn raw_waker() -> RawWaker {
    fn clone(_: *const ()) -> RawWaker { raw_waker() }
    fn nothing(_: *const ()) {}
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, nothing, nothing, nothing);
    RawWaker::new(std::ptr::null(), &TABLE)
}
#[inline(never)]
fn run<F: Future>(future: F) -> F::Output {
    let mut future = Box::pin(future);
    let waker = unsafe { Waker::from_raw(raw_waker()) };
    let mut cx = Context::from_waker(&waker);
    loop { if let Poll::Ready(r) = future.as_mut().poll(&mut cx) { return r; } }
}

#[inline(never)]
fn fails(n: u64) { if n > 3 { panic!("order {} is not known", n); } }

fn main() {
    let shapes: Vec<Box<dyn Shape>> = vec![Box::new(Square(2u8)), Box::new(Square(3u32))];
    let mut sum: u64 = shapes.iter().map(|s| s.area(1)).sum();
    let mut rows = BTreeMap::new();
    rows.insert(String::from("a"), vec![1u8, 2]);
    let table = Table { rows };
    sum += table.each(|k, v| leaf(k.len() as u64 + v.len() as u64));
    sum += run(handle(7));
    sum += run(Square(4u16).ask());
    std::panic::set_hook(Box::new(|info| { leaf(9); println!("panic: {}", info); }));
    let _ = std::panic::catch_unwind(|| fails(black_box(4)));
    println!("sum {}", sum);
}
