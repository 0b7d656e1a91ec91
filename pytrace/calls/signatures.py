"""Signatures of system calls: names and types of their arguments, and of what they return.

A line of :data:`TEXT` is a call: ``name argument:type … = result``. The facts are those of the manual pages of section
2 and of ``SYSCALL_DEFINE`` in the kernel's sources. The form of a type:

| form | the argument is |
|---|---|
| ``int``, ``uint``, ``long``, ``ulong`` | a decimal number |
| ``hex``, ``ptr``, ``oct`` | a number, an address (NULL for 0), octal |
| ``mode`` | permissions, only where a file may be made |
| ``fd``, ``at`` | a file descriptor; the same, or AT_FDCWD |
| ``sig``, ``id``, ``dev``, ``open`` | a signal; a user or group (-1); a device; the flags of open(2) |
| ``|TABLE``, ``#TABLE`` | flags, or one of the values, of a table of :mod:`pytrace.calls.flag_tables` |
| ``path``, ``str`` | a string |
| ``<T``, ``>T``, ``=T`` | the address of a T that the call reads; writes; reads and changes |
| ``<T*N``, ``>T*N``, ``>T*r`` | the address of as many T as argument N says, or as the call returns |

T is a struct of :mod:`pytrace.calls.values`, ``buf`` (bytes), or a special form: ``argv``, ``envp``, ``iov``,
``msghdr``, ``sockaddr``. A ``T@N`` has its size, in bytes, in the integer that argument N points to.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from pytrace.core import system_calls
from pytrace.core.diagnostics import InternalError

TEXT = """
read fd:fd buf:>buf*r count:ulong
write fd:fd buf:<buf*2 count:ulong
open path:path flags:open mode:mode = fd
close fd:fd
stat path:path buf:>stat
fstat fd:fd buf:>stat
lstat path:path buf:>stat
poll fds:=pollfd*1 nfds:uint timeout:int
lseek fd:fd offset:long whence:#whence
mmap addr:ptr length:ulong prot:prot flags:mapflags fd:fd offset:mapoff = ptr
mprotect addr:ptr length:ulong prot:prot
munmap addr:ptr length:ulong
brk addr:ptr = ptr
rt_sigaction sig:sig act:<sigaction oldact:>sigaction size:ulong
rt_sigprocmask how:#sighow set:<sigset old:>sigset size:ulong
rt_sigreturn
ioctl fd:fd request:ioctl arg:ioctlarg
pread64 fd:fd buf:>buf*r count:ulong offset:long
pwrite64 fd:fd buf:<buf*2 count:ulong offset:long
readv fd:fd iov:>iov*2 count:int
writev fd:fd iov:<iov*2 count:int
access path:path mode:access
pipe fds:>int*'2'
select nfds:int read:=fdset write:=fdset except:=fdset timeout:=timeval
sched_yield
mremap addr:ptr old_size:ulong new_size:ulong flags:|mremap new_addr:hexif3 = ptr
msync addr:ptr length:ulong flags:|msync
mincore addr:ptr length:ulong vec:>resident
madvise addr:ptr length:ulong advice:#madv
shmget key:key size:ulong flags:ipcflags
shmat id:int addr:ptr flags:|shmat = ptr
shmctl id:int cmd:#shmctl buf:ptr
dup fd:fd = fd
dup2 fd:fd new:fd = fd
pause
nanosleep req:<timespec rem:>timespec!
getitimer which:#itimer value:>itimerval
alarm seconds:uint
setitimer which:#itimer new:<itimerval old:>itimerval
getpid
sendfile out:fd in:fd offset:=off count:ulong
socket family:#addrfam type:socktype protocol:protocol = fd
connect fd:fd addr:<sockaddr*2 len:int
accept fd:fd addr:>sockaddr@2 len:=int = fd
sendto fd:fd buf:<buf*2 size:ulong flags:|msg addr:<sockaddr*5 len:int
recvfrom fd:fd buf:>buf*r size:ulong flags:|msg addr:>sockaddr@5 len:=int
sendmsg fd:fd msg:<msghdr flags:|msg
recvmsg fd:fd msg:>msghdr flags:|msg
shutdown fd:fd how:#shut
bind fd:fd addr:<sockaddr*2 len:int
listen fd:fd backlog:int
getsockname fd:fd addr:>sockaddr@2 len:=int
getpeername fd:fd addr:>sockaddr@2 len:=int
socketpair family:#addrfam type:socktype protocol:protocol fds:>int*'2'
setsockopt fd:fd level:#sol name:sockopt value:<sockval*4 len:int
getsockopt fd:fd level:#sol name:sockopt value:>sockval@4 len:=int
clone flags:cloneflags stack:ptr parent_tid:>int child_tid:ptr tls:ptr
fork
vfork
execve path:path argv:<argv envp:<envp
exit status:int
wait4 pid:int status:>status! options:|wait rusage:>rusage
kill pid:int sig:sig
uname buf:>utsname
semget key:key count:int flags:ipcflags
semop id:int ops:<sembuf*2 count:ulong
semctl id:int num:int cmd:#semctl arg:hex
shmdt addr:ptr
msgget key:key flags:ipcflags
msgsnd id:int msg:ptr size:ulong flags:|msgop
msgrcv id:int msg:ptr size:ulong type:long flags:|msgop
msgctl id:int cmd:#msgctl buf:ptr
fcntl fd:fd cmd:#fcntl arg:fcntlarg
flock fd:fd op:|lock
fsync fd:fd
fdatasync fd:fd
truncate path:path length:long
ftruncate fd:fd length:long
getdents fd:fd buf:ptr count:uint
getcwd buf:>cstr*r size:ulong
chdir path:path
fchdir fd:fd
rename old:path new:path
mkdir path:path mode:oct
rmdir path:path
creat path:path mode:oct = fd
link old:path new:path
unlink path:path
symlink target:path link:path
readlink path:path buf:>buf*r size:ulong
chmod path:path mode:oct
fchmod fd:fd mode:oct
chown path:path uid:id gid:id
fchown fd:fd uid:id gid:id
lchown path:path uid:id gid:id
umask mask:oct = oct
gettimeofday tv:>timeval tz:ptr
getrlimit resource:#rlimit limit:>rlimit
getrusage who:#rusage usage:>rusage
sysinfo info:>sysinfo
times buf:>tms
ptrace request:#ptrace pid:int addr:hex data:hex
getuid
syslog type:int buf:ptr len:int
getgid
setuid uid:id
setgid gid:id
geteuid
getegid
setpgid pid:int pgid:int
getppid
getpgrp
setsid
setreuid ruid:id euid:id
setregid rgid:id egid:id
getgroups size:int list:>uint*r
setgroups size:int list:<uint*0
setresuid ruid:id euid:id suid:id
getresuid ruid:>uint euid:>uint suid:>uint
setresgid rgid:id egid:id sgid:id
getresgid rgid:>uint egid:>uint sgid:>uint
getpgid pid:int
setfsuid uid:id
setfsgid gid:id
getsid pid:int
capget header:<caphead data:>capdata
capset header:<caphead data:<capdata
rt_sigpending set:>sigset size:ulong
rt_sigtimedwait set:<sigset info:>siginfo timeout:<timespec size:ulong
rt_sigqueueinfo pid:int sig:sig info:<siginfo
rt_sigsuspend set:<sigset size:ulong
sigaltstack ss:<stack old:>stack
utime path:path times:<utimbuf
mknod path:path mode:filemode dev:dev
personality persona:persona
statfs path:path buf:>statfs
fstatfs fd:fd buf:>statfs
getpriority which:#priority who:int
setpriority which:#priority who:int prio:int
sched_setparam pid:int param:<int
sched_getparam pid:int param:>int
sched_setscheduler pid:int policy:#sched param:<int
sched_getscheduler pid:int = #sched
sched_get_priority_max policy:#sched
sched_get_priority_min policy:#sched
sched_rr_get_interval pid:int interval:>timespec
mlock addr:ptr length:ulong
munlock addr:ptr length:ulong
mlockall flags:|mcl
munlockall
vhangup
pivot_root new:path old:path
prctl option:#prctl arg2:prctlarg arg3:prctlrest arg4:prctlrest arg5:prctlrest
arch_prctl code:#arch addr:hex
setrlimit resource:#rlimit limit:<rlimit
chroot path:path
sync
acct path:path
settimeofday tv:<timeval tz:ptr
mount source:path target:path type:str flags:|mount data:ptr
umount2 target:path flags:|umount
swapon path:path flags:hex
swapoff path:path
reboot magic:hex magic2:hex cmd:#reboot arg:hex
sethostname name:<buf*1 len:ulong
setdomainname name:<buf*1 len:ulong
iopl level:int
ioperm from:ulong num:ulong on:int
init_module image:ptr len:ulong params:str
delete_module name:str flags:open
quotactl cmd:hex special:path id:uint addr:ptr
gettid
readahead fd:fd offset:long count:ulong
setxattr path:path name:str value:<buf*3 size:ulong flags:|xattr
lsetxattr path:path name:str value:<buf*3 size:ulong flags:|xattr
fsetxattr fd:fd name:str value:<buf*3 size:ulong flags:|xattr
getxattr path:path name:str value:>buf*r size:ulong
lgetxattr path:path name:str value:>buf*r size:ulong
fgetxattr fd:fd name:str value:>buf*r size:ulong
listxattr path:path list:>buf*r size:ulong
llistxattr path:path list:>buf*r size:ulong
flistxattr fd:fd list:>buf*r size:ulong
removexattr path:path name:str
lremovexattr path:path name:str
fremovexattr fd:fd name:str
tkill tid:int sig:sig
time tloc:>long
futex addr:ptr op:futexop val:futexval timeout:futextime addr2:futexrest val3:futexrest
sched_setaffinity pid:int size:ulong mask:<cpuset*1
sched_getaffinity pid:int size:ulong mask:>cpuset*r
io_setup nr:uint ctx:>ptr
io_destroy ctx:ptr
io_getevents ctx:ptr min:long nr:long events:ptr timeout:<timespec
io_submit ctx:ptr nr:long iocbs:ptr
io_cancel ctx:ptr iocb:ptr result:ptr
epoll_create size:int = fd
getdents64 fd:fd buf:ptr count:uint
set_tid_address addr:ptr
restart_syscall
semtimedop id:int ops:<sembuf*2 count:ulong timeout:<timespec
fadvise64 fd:fd offset:long length:ulong advice:#fadvise
timer_create clock:#clock event:<sigevent id:>int
timer_settime id:int flags:|timerset new:<itimerspec old:>itimerspec
timer_gettime id:int value:>itimerspec
timer_getoverrun id:int
timer_delete id:int
clock_settime clock:#clock time:<timespec
clock_gettime clock:#clock time:>timespec
clock_getres clock:#clock res:>timespec
clock_nanosleep clock:#clock flags:|timerset req:<timespec rem:>timespec!
exit_group status:int
epoll_wait epfd:fd events:>epoll_event*r max:int timeout:int
epoll_ctl epfd:fd op:#epollctl fd:fd event:<epoll_event
tgkill tgid:int tid:int sig:sig
utimes path:path times:<timeval*'2'
mbind addr:ptr length:ulong mode:#mpol nodemask:ptr maxnode:ulong flags:hex
set_mempolicy mode:#mpol nodemask:ptr maxnode:ulong
get_mempolicy mode:ptr nodemask:ptr maxnode:ulong addr:ptr flags:hex
mq_open name:str flags:open mode:mode attr:<mq_attr = fd
mq_unlink name:str
mq_timedsend fd:fd msg:<buf*2 len:ulong prio:uint timeout:<timespec
mq_timedreceive fd:fd msg:>buf*r len:ulong prio:>uint timeout:<timespec
mq_notify fd:fd event:<sigevent
mq_getsetattr fd:fd new:<mq_attr old:>mq_attr
waitid type:#waitid_type id:int info:>siginfo options:|waitid rusage:>rusage
add_key type:str description:str payload:<buf*3 size:ulong ring:int
request_key type:str description:str info:str ring:int
keyctl op:#keyctl arg2:hex arg3:hex arg4:hex arg5:hex
ioprio_set which:#ioprio who:int prio:hex
ioprio_get which:#ioprio who:int
inotify_init = fd
inotify_add_watch fd:fd path:path mask:|inotify
inotify_rm_watch fd:fd wd:int
migrate_pages pid:int maxnode:ulong old:ptr new:ptr
openat dirfd:at path:path flags:open mode:mode = fd
mkdirat dirfd:at path:path mode:oct
mknodat dirfd:at path:path mode:filemode dev:dev
fchownat dirfd:at path:path uid:id gid:id flags:|atfile
futimesat dirfd:at path:path times:<timeval*'2'
newfstatat dirfd:at path:path buf:>stat flags:|atfile
unlinkat dirfd:at path:path flags:|atunlink
renameat olddir:at old:path newdir:at new:path
linkat olddir:at old:path newdir:at new:path flags:|atfile
symlinkat target:path dirfd:at link:path
readlinkat dirfd:at path:path buf:>buf*r size:ulong
fchmodat dirfd:at path:path mode:oct
faccessat dirfd:at path:path mode:access
pselect6 nfds:int read:=fdset write:=fdset except:=fdset timeout:=timespec sigmask:ptr
ppoll fds:=pollfd*1 nfds:uint timeout:=timespec sigmask:<sigset size:ulong
unshare flags:|unshare
set_robust_list head:ptr len:ulong
get_robust_list pid:int head:>ptr len:>ulong
splice in:fd in_off:=off out:fd out_off:=off length:ulong flags:|splice
tee in:fd out:fd length:ulong flags:|splice
sync_file_range fd:fd offset:long length:long flags:|syncrange
vmsplice fd:fd iov:<iov*2 count:ulong flags:|splice
move_pages pid:int count:ulong pages:ptr nodes:ptr status:ptr flags:hex
utimensat dirfd:at path:path times:<timespec*'2' flags:|atfile
epoll_pwait epfd:fd events:>epoll_event*r max:int timeout:int sigmask:<sigset size:ulong
signalfd fd:fd mask:<sigset size:ulong = fd
timerfd_create clock:#clock flags:|tfd = fd
eventfd count:uint = fd
fallocate fd:fd mode:|fallocate offset:long length:long
timerfd_settime fd:fd flags:|tfdset new:<itimerspec old:>itimerspec
timerfd_gettime fd:fd value:>itimerspec
accept4 fd:fd addr:>sockaddr@2 len:=int flags:|sockflags = fd
signalfd4 fd:fd mask:<sigset size:ulong flags:|sfd = fd
eventfd2 count:uint flags:|efd = fd
epoll_create1 flags:|epollcreate = fd
dup3 fd:fd new:fd flags:|pipe = fd
pipe2 fds:>int*'2' flags:|pipe
inotify_init1 flags:|inotifyinit = fd
preadv fd:fd iov:>iov*2 count:int offset:long
pwritev fd:fd iov:<iov*2 count:int offset:long
rt_tgsigqueueinfo tgid:int tid:int sig:sig info:<siginfo
perf_event_open attr:<perf_attr pid:int cpu:int group:fd flags:|perf = fd
recvmmsg fd:fd msgs:ptr count:uint flags:|msg timeout:<timespec
fanotify_init flags:|fanclass events:open = fd
fanotify_mark fd:fd flags:|fanmark mask:|fanmask dirfd:at path:path
prlimit64 pid:int resource:#rlimit new:<rlimit old:>rlimit
name_to_handle_at dirfd:at path:path handle:ptr mount:>int flags:|at
open_by_handle_at fd:fd handle:ptr flags:open = fd
clock_adjtime clock:#clock buf:ptr
syncfs fd:fd
sendmmsg fd:fd msgs:ptr count:uint flags:|msg
setns fd:fd type:|unshare
getcpu cpu:>uint node:>uint cache:ptr
process_vm_readv pid:int local:>iov*2 local_count:ulong remote:<iovec*4 remote_count:ulong flags:ulong
process_vm_writev pid:int local:<iov*2 local_count:ulong remote:<iovec*4 remote_count:ulong flags:ulong
kcmp pid1:int pid2:int type:#kcmp idx1:ulong idx2:ulong
finit_module fd:fd params:str flags:hex
sched_setattr pid:int attr:<sched_attr flags:hex
sched_getattr pid:int attr:>sched_attr size:uint flags:hex
renameat2 olddir:at old:path newdir:at new:path flags:|rename
seccomp op:#seccomp flags:hex args:ptr
getrandom buf:>rand*r size:ulong flags:|grnd
memfd_create name:str flags:|mfd = fd
kexec_file_load kernel:fd initrd:fd len:ulong cmdline:str flags:hex
bpf cmd:#bpf attr:ptr size:uint
execveat dirfd:at path:path argv:<argv envp:<envp flags:|at
userfaultfd flags:|uffd = fd
membarrier cmd:#membarrier flags:hex cpu:hexif3
mlock2 addr:ptr length:ulong flags:|mlock
copy_file_range in:fd in_off:=off out:fd out_off:=off length:ulong flags:hex
preadv2 fd:fd iov:>iov*2 count:int offset:long flags:|rwf
pwritev2 fd:fd iov:<iov*2 count:int offset:long flags:|rwf
pkey_mprotect addr:ptr length:ulong prot:prot key:int
pkey_alloc flags:hex rights:hex
pkey_free key:int
statx dirfd:at path:path flags:statxflags mask:|statx buf:>statx
io_pgetevents ctx:ptr min:long nr:long events:ptr timeout:<timespec sig:ptr
rseq addr:ptr size:hex flags:hex signature:hex
pidfd_send_signal fd:fd sig:sig info:<siginfo flags:hex
io_uring_setup entries:uint params:=uring_params = fd
io_uring_enter fd:fd submit:uint min:uint flags:|iouringenter sig:ptr size:ulong
io_uring_register fd:fd op:#iouringregister arg:ptr count:uint
open_tree dirfd:at path:path flags:|opentree = fd
move_mount olddir:at old:path newdir:at new:path flags:|movemount
fsopen name:str flags:|fsopen = fd
fsconfig fd:fd cmd:#fsconfig key:str value:ptr aux:int
fsmount fd:fd flags:|fsmount attr:|mountattr = fd
fspick dirfd:at path:path flags:|fspick = fd
pidfd_open pid:int flags:|pidfd = fd
clone3 args:<clone_args size:ulong
close_range first:uint last:uint flags:|closerange
openat2 dirfd:at path:path how:<open_how size:ulong = fd
pidfd_getfd pidfd:fd fd:int flags:hex = fd
faccessat2 dirfd:at path:path mode:access flags:|at
process_madvise fd:fd iov:ptr count:ulong advice:#madv flags:hex
epoll_pwait2 epfd:fd events:>epoll_event*r max:int timeout:<timespec sigmask:<sigset size:ulong
mount_setattr dirfd:at path:path flags:|at attr:ptr size:ulong
landlock_create_ruleset attr:<landlock_attr size:ulong flags:hex = fd
landlock_add_rule fd:fd type:int attr:ptr flags:hex
landlock_restrict_self fd:fd flags:hex
memfd_secret flags:|fdflags = fd
process_mrelease fd:fd flags:hex
futex_waitv waiters:ptr count:uint flags:hex timeout:<timespec clock:#clock
cachestat fd:fd range:<offs*'2' stat:ptr flags:hex
fchmodat2 dirfd:at path:path mode:oct flags:|atfile
mseal addr:ptr length:ulong flags:hex
"""

ALIASES: Mapping[str, str] = {"fstatat": "newfstatat", "sendfile64": "sendfile"}
"""Calls of other machines under the name that :data:`TEXT` has."""

STRING, BYTES, ARGV, ENVP, IOV, MSGHDR = "string", "bytes", "argv", "envp", "iov", "msghdr"


class Type(msgspec.Struct, frozen=True):
    """The type of an argument.

    *base* is its name; *direction* is empty for a value, else ``<``, ``>`` or ``=``, for what an address points to.
    *count* is the argument that says how many there are (-1: the result), *times* their number where it is constant;
    *sized* is the argument that points to the size in bytes. With *failing* it is read also after an error.
    """

    base: str
    direction: str = ""
    count: int | None = None
    times: int | None = None
    sized: int | None = None
    failing: bool = False


class Signature(msgspec.Struct, frozen=True):
    """A system call: names and types of its arguments, and the type of its result."""

    name: str
    names: tuple[str, ...]
    types: tuple[Type, ...]
    result: str


@cache
def signatures() -> Mapping[str, Signature]:
    """The signatures by name."""
    rows = (_signature(line) for line in TEXT.splitlines() if line)
    return {row.name: row for row in rows}


@cache
def call_names(machine: str) -> Mapping[int, str]:
    """The names of the system calls of a machine by number."""
    return {number: name for number, name in enumerate(system_calls.call_names(machine)) if name}


@cache
def by_number(machine: str) -> Mapping[int, Signature]:
    """The signatures by number of the system calls of a machine."""
    known = signatures()
    names = call_names(machine)
    found = ((number, known.get(ALIASES.get(name, name))) for number, name in names.items())
    return {number: signature for number, signature in found if signature is not None}


def _signature(line: str) -> Signature:
    words = line.split()
    result = "int"
    if "=" in words:
        words, result = words[: words.index("=")], words[-1]
    pairs = [word.split(":", 1) for word in words[1:]]
    return Signature(words[0], tuple(pair[0] for pair in pairs), tuple(_type(pair[1]) for pair in pairs), result)


def _type(text: str) -> Type:
    failing = text.endswith("!")
    text = text.removesuffix("!")
    if text == "path" or text == "str":
        return Type(text, "<", failing=failing)
    direction = text[0] if text[0] in "<>=" else ""
    base, count, times, sized = text.removeprefix(direction) if direction else text, None, None, None
    if "*" in base:
        base, number = base.split("*")
        if number.startswith("'"):
            times = int(number.strip("'"))
        else:
            count = -1 if number == "r" else int(number)
    elif "@" in base:
        base, number = base.split("@")
        sized = int(number)
    if not base:
        raise InternalError(f"a type of an argument: {text!r}")
    return Type(base, direction, count, times, sized, failing)
