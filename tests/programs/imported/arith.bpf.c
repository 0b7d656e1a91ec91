/* Functions that scripts import. arith.bpf.o is made from this, for machines without clang:
 *   clang -target bpf -g -O2 -c arith.bpf.c -o arith.bpf.o
 */
typedef unsigned int u32;
typedef unsigned long long u64;

char LICENSE[] __attribute__((section("license"), used)) = "GPL";

enum shape { ROUND = 1, SQUARE = 4 };

struct pair {
    u32 first;
    u64 second;
};

struct task_struct {
    int pid;
} __attribute__((preserve_access_index));

struct pair whole_pair;
static int calls = 0;

static __attribute__((noinline)) int twice(int n) { return n * 2; }

int triple(int n) {
    calls++;
    return n + twice(n);
}

u64 weigh(u64 n, u32 factor, _Bool more) { return n * factor + (more ? 1000 : 0); }

u32 first_byte(const char *text) { return text[0]; }

int times_called(void) { return calls; }

void add_calls(long n) { calls += n; }

int pid_of(struct task_struct *task) { return task->pid; }

enum shape shape_of(unsigned char corners) { return corners == 4 ? SQUARE : ROUND; }

u64 second_of(struct pair *pair) { return pair->second; }

long six(long a, long b, long c, long d, long e) { return a + b + c + d + e; }

struct pair *a_pair(void) {
    whole_pair.first = 7;
    return &whole_pair;
}
