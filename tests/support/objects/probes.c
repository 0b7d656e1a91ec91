/* Programs for tests of loader and attachers, one for each way of attaching. probes.ll is made from this file, so that tests need
 * no clang: clang -O2 -g -target bpf -Xclang -opaque-pointers -S -emit-llvm probes.c -o probes.ll */
typedef unsigned int u32; typedef unsigned long long u64; typedef int s32;
#define __uint(name, val) int (*name)[val]
#define __type(name, val) typeof(val) *name
#define SEC(n) __attribute__((section(n), used))
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static u64 (*bpf_get_attach_cookie)(void *ctx) = (void *)174;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static void *(*bpf_ringbuf_reserve)(void *ringbuf, u64 size, u64 flags) = (void *)131;
static void (*bpf_ringbuf_submit)(void *data, u64 flags) = (void *)132;

struct { __uint(type, 27); __uint(max_entries, 4096); } events SEC(".maps");
struct { __uint(type, 1); __uint(max_entries, 4096); __type(key, u64); __type(value, u64); } counts SEC(".maps");
struct { __uint(type, 5); __uint(max_entries, 4096); __type(key, u64); __type(value, u64); } percpu SEC(".maps");

u64 wanted SEC(".data.settings") = 0;      /* pid that programs look at, 0 for all */
struct copy { u64 written; u64 value; u64 pad[6]; };
struct copy hits[8] SEC(".data.slots") = {};
u64 lost[8][2] SEC(".data.counters") = {};

static inline int other(void) { return wanted && (bpf_get_current_pid_tgid() >> 32) != wanted; }
static inline void hit(void) { struct copy *c = &hits[bpf_get_smp_processor_id() & 7]; c->value++; c->written = 1; }

SEC("pytrace/begin_0") int begin_0(void *ctx) { hit(); return 7; }

/* header {id, tail length} and three integers */
struct event { u32 id, tail; u64 a, b, c; };
static inline int send(u64 cookie) {
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) { lost[bpf_get_smp_processor_id() & 7][0]++; return 0; }
	struct copy *c = &hits[bpf_get_smp_processor_id() & 7];
	e->id = 0; e->tail = 0; e->a = c->value; e->b = bpf_get_current_pid_tgid() >> 32; e->c = cookie;
	bpf_ringbuf_submit(e, 0);
	return 0;
}
static inline int event(void *ctx) { if (other()) return 0; hit(); return send(bpf_get_attach_cookie(ctx)); }
static inline int count(void *ctx) {
	if (other()) return 0;
	hit();
	u64 key = bpf_get_attach_cookie(ctx), one = 1;
	u64 *v = bpf_map_lookup_elem(&percpu, &key);
	if (v) (*v)++; else bpf_map_update_elem(&percpu, &key, &one, 0);
	v = bpf_map_lookup_elem(&counts, &key);
	if (v) __sync_fetch_and_add(v, 1); else bpf_map_update_elem(&counts, &key, &one, 0);
	return 0;
}
SEC("pytrace/event_kprobe") int event_kprobe(void *ctx) { return event(ctx); }
SEC("pytrace/event_tracepoint") int event_tracepoint(void *ctx) { return event(ctx); }
SEC("pytrace/count_kprobe") int count_kprobe(void *ctx) { return count(ctx); }
SEC("pytrace/count_multi") int count_multi(void *ctx) { return count(ctx); }
SEC("pytrace/count_return") int count_return(void *ctx) { return count(ctx); }
SEC("pytrace/count_tracepoint") int count_tracepoint(void *ctx) { return count(ctx); }
SEC("pytrace/count_perf") int count_perf(void *ctx) { return count(ctx); }
SEC("pytrace/count_tracing") int count_tracing(void *ctx) { return count(ctx); }
SEC("pytrace/hit_tracing") int hit_tracing(void *ctx) { if (!other()) hit(); return 0; }
SEC("pytrace/bad") int bad(void *ctx) { return *(volatile int *)0x1234; }
struct bpf_iter_meta { void *seq; };
static long (*bpf_seq_write)(void *m, const void *data, u32 len) = (void *)127;
SEC("pytrace/hit_iter") int hit_iter(u64 *ctx) { hit(); return 0; }
char _license[] SEC("license") = "GPL";
