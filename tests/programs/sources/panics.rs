// For tests/kernel/test_returns.py.
#[inline(never)]
fn deep(x: u64) -> u64 { let held = vec![x; 3]; if x % 2 == 1 { panic!("odd") } std::hint::black_box(&held)[0] }
#[inline(never)]
#[no_mangle]
pub fn middle(x: u64) -> u64 { std::hint::black_box(deep(x)) + 1 }
fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let caught = (0..2000u64).filter(|&x| std::panic::catch_unwind(|| middle(x)).is_err()).count();
    println!("{}", caught);
    std::process::exit(4)
}
