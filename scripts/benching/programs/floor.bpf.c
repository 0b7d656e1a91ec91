/* What scripts of events.* do, written by hand for libbpf: programs of raw tracepoints and per-CPU maps. programs/floor.c loads one group of
 * them, which is named as its map is: count, comm, pid, hist, pair. */
#include <linux/bpf.h>

#include <asm/unistd.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

typedef __u32 u32;
typedef __u64 u64;

#define SLOTS 65   /* of a logarithmic histogram: 0, and each bit of a number */
#define KEYS 4096  /* of a map: what the tracers take when a script does not say otherwise */
#define NAME 16    /* TASK_COMM_LEN */

#define MAP(name_, type_, key_, value_, entries_)                                                                                                \
    struct {                                                                                                                                     \
        __uint(type, type_);                                                                                                                     \
        __uint(max_entries, entries_);                                                                                                           \
        __type(key, key_);                                                                                                                       \
        __type(value, value_);                                                                                                                   \
    } name_ SEC(".maps")

struct name {
    char text[NAME];
};

MAP(count, BPF_MAP_TYPE_PERCPU_ARRAY, u32, u64, 1);
MAP(comm, BPF_MAP_TYPE_PERCPU_HASH, struct name, u64, KEYS);
MAP(pid, BPF_MAP_TYPE_PERCPU_HASH, u64, u64, KEYS);
MAP(hist, BPF_MAP_TYPE_PERCPU_ARRAY, u32, u64, SLOTS);
MAP(pair, BPF_MAP_TYPE_PERCPU_ARRAY, u32, u64, SLOTS);
MAP(start, BPF_MAP_TYPE_HASH, u32, u64, KEYS);

/* The number of bits of a value. The assembler's line keeps the branch: clang would compute each condition twice, as numbers. */
static __always_inline u32 slot_of(u64 value) {
    u64 slot = 0;
    u32 step;
#pragma unroll
    for (step = 32; step; step /= 2)
        if (value >> step) {
            value >>= step;
            slot += step;
            __asm__ volatile("" : "+r"(value), "+r"(slot));
        }
    return slot + (value != 0);
}

static __always_inline void add_to_slot(void *map, u64 value) {
    u32 slot = slot_of(value);
    u64 *number = bpf_map_lookup_elem(map, &slot);
    if (number)
        ++*number;
}

static __always_inline void add_to_key(void *map, const void *key) {
    u64 one = 1, *number = bpf_map_lookup_elem(map, key);
    if (number)
        ++*number;
    else
        bpf_map_update_elem(map, key, &one, BPF_NOEXIST);
}

/* Of sys_enter the arguments are the registers and the number of the call, of sys_exit the registers and the result. */
static __always_inline int called(const struct bpf_raw_tracepoint_args *ctx) { return ctx->args[1] == __NR_getsid; }

SEC("raw_tp/sys_enter")
int count_entry(struct bpf_raw_tracepoint_args *ctx) {
    u32 only = 0;
    u64 *number;
    if (!called(ctx))
        return 0;
    number = bpf_map_lookup_elem(&count, &only);
    if (number)
        ++*number;
    return 0;
}

SEC("raw_tp/sys_enter")
int comm_entry(struct bpf_raw_tracepoint_args *ctx) {
    struct name name;
    if (!called(ctx))
        return 0;
    bpf_get_current_comm(&name, sizeof name);
    add_to_key(&comm, &name);
    return 0;
}

SEC("raw_tp/sys_enter")
int pid_entry(struct bpf_raw_tracepoint_args *ctx) {
    u64 process;
    if (!called(ctx))
        return 0;
    process = bpf_get_current_pid_tgid() >> 32;
    add_to_key(&pid, &process);
    return 0;
}

SEC("raw_tp/sys_enter")
int hist_entry(struct bpf_raw_tracepoint_args *ctx) {
    if (called(ctx))
        add_to_slot(&hist, bpf_ktime_get_ns());
    return 0;
}

SEC("raw_tp/sys_enter")
int pair_entry(struct bpf_raw_tracepoint_args *ctx) {
    u32 thread;
    u64 now;
    if (!called(ctx))
        return 0;
    thread = bpf_get_current_pid_tgid();
    now = bpf_ktime_get_ns();
    bpf_map_update_elem(&start, &thread, &now, BPF_ANY);
    return 0;
}

/* The number of the call is in the registers of its entry. */
#if defined(__x86_64__)
struct pt_regs {
    unsigned long orig_ax;
} __attribute__((preserve_access_index));
#define NUMBER orig_ax
#elif defined(__aarch64__)
struct pt_regs {
    int syscallno;
} __attribute__((preserve_access_index));
#define NUMBER syscallno
#endif

SEC("raw_tp/sys_exit")
int pair_return(struct bpf_raw_tracepoint_args *ctx) {
    const struct pt_regs *registers = (const void *)ctx->args[0];
    u32 thread;
    u64 *began;
    if (BPF_CORE_READ(registers, NUMBER) != __NR_getsid)
        return 0;
    thread = bpf_get_current_pid_tgid();
    began = bpf_map_lookup_elem(&start, &thread);
    if (!began)
        return 0;
    add_to_slot(&pair, bpf_ktime_get_ns() - *began);
    bpf_map_delete_elem(&start, &thread);
    return 0;
}

char LICENSE[] SEC("license") = "GPL";
