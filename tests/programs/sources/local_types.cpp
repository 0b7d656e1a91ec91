/* For tests/runtime/binaries/test_entries.py. */
extern "C" int rand(void);
namespace app { namespace {
struct Part { int n; inline __attribute__((always_inline)) int twice() { return n * rand(); } };
inline __attribute__((always_inline)) int inner(int n) { return Part{n}.twice() + rand(); }
} }
static inline __attribute__((always_inline)) int plain(int n) { return n + rand(); }
int main(int argc, char **) {
    auto call = [&](int n) __attribute__((always_inline)) { return app::inner(n) + argc; };
    return call(plain(argc));
}
