"""Signatures of functions of the C library, for the time when no DWARF is at hand.

A line is ``name arguments result``, a letter each: ``s`` a string, ``i`` an int, ``l`` a long, ``u`` a size, ``p`` an
address, ``c`` a character, ``m`` permissions, ``f`` a floating-point number, ``v`` nothing (as a result) or, last,
further arguments; as results ``n`` and ``k`` are an int and a long of which negative ones are no failures. The facts
are those of the manual pages of section 3.
"""

from __future__ import annotations

from functools import cache

from pytrace.calls.function_values import REGISTERS, Value, string
from pytrace.core.kernel_info import RegisterPart
from pytrace.core.types import VOID, Float, Int, Pointer, Type

TEXT = """
abort - v
abs i n
accept ipp i
access si i
alarm i i
asctime p s
atof s f
atoi s n
atol s k
basename s s
bind ipi i
bsearch ppuup p
calloc uu p
chdir s i
chmod sm i
clock_gettime ip i
clock_nanosleep iipp i
close i i
closedir p i
connect ipi i
ctime p s
dirname s s
dlclose p i
dlopen si p
dlsym ps p
dup i i
dup2 ii i
execve spp i
execvp sp i
exit i v
_exit i v
fclose p i
fdopen is p
feof p i
ferror p i
fflush p i
fgetc p i
fgets pip s
fileno p i
fnmatch ssi i
fopen ss p
fopen64 ss p
fork - i
fprintf psv i
__fprintf_chk pisv i
fputc cp i
fputs sp i
fread puup u
free p v
freeaddrinfo p v
freopen ssp p
fseek pli i
fsync i i
ftell p l
fwrite puup u
gai_strerror i s
getaddrinfo sspp i
getc p i
getchar - i
getcwd pu s
getenv s s
secure_getenv s s
getgrgid i p
getgrnam s p
gethostbyname s p
gethostname pu i
getline ppp l
getopt ips i
getopt_long ipspp i
getpid - i
getppid - i
getpwnam s p
getpwuid i p
gettimeofday pp i
getuid - i
geteuid - i
getgid - i
getegid - i
inet_ntop ippu s
inet_pton isp i
isatty i i
kill ii i
localtime p p
gmtime p p
lseek ili l
malloc u p
memchr piu p
memcmp ppu n
memcpy ppu p
memmove ppu p
mempcpy ppu p
memset piu p
mkdir sm i
mkstemp s i
mktime p l
mmap puiiil p
munmap pu i
nanosleep pp i
nl_langinfo i s
open siv i
open64 siv i
opendir s p
pause - i
pclose p i
perror s v
pipe p i
poll pui i
popen ss p
posix_memalign puu i
printf sv i
__printf_chk isv i
pthread_cond_signal p i
pthread_cond_wait pp i
pthread_create pppp i
pthread_join pp i
pthread_mutex_lock p i
pthread_mutex_unlock p i
putc cp i
putchar c i
putenv s i
puts s i
qsort puup v
raise i i
rand - i
random - l
read ipu l
readdir p p
readdir64 p p
readlink spu l
realloc pu p
realpath sp s
recv ipui l
regcomp psi i
remove s i
rename ss i
rewind p v
rmdir s i
select ipppp i
send ipui l
setenv ssi i
setjmp p i
_setjmp p i
__sigsetjmp pi i
setlocale is s
setsockopt iiipi i
sigaction ipp i
signal ip p
sleep i i
snprintf pusv i
__snprintf_chk puiusv i
socket iii i
sprintf psv i
srand i v
sscanf ssv i
stat sp i
lstat sp i
fstat ip i
stpcpy ps s
strcasecmp ss n
strcat ss s
strchr sc s
strcmp ss n
strcoll ss n
strcpy ps s
strcspn ss u
strdup s s
strerror i s
strftime pusp u
strlcpy psu u
strlen s u
strncasecmp ssu n
strncat ssu s
strncmp ssu n
strncpy psu s
strndup su s
strnlen su u
strpbrk ss s
strrchr sc s
strsignal i s
strspn ss u
strstr ss s
strtod sp f
strtok ss s
strtol spi k
strtoul spi u
strtoull spi u
sysconf i l
system s i
textdomain s s
bindtextdomain ss s
dcgettext ssi s
gettext s s
time p l
ungetc cp i
uname p i
unlink s i
unsetenv s i
usleep u i
vfprintf psp i
vsnprintf pusp i
wait p i
waitpid ipi i
write ipu l
"""

MATHS = {
    "f f": "acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erfc exp exp10 exp2 expm1 fabs floor j0 j1 lgamma "
           "log log10 log1p log2 logb nearbyint rint round roundeven sin sinh sqrt tan tanh tgamma trunc y0 y1",
    "ff f": "atan2 copysign drem fdim fmax fmin fmod hypot nextafter pow remainder",
    "fff f": "fma", "f n": "ilogb", "f k": "llrint llround lrint lround", "fi f": "ldexp scalbn", "fl f": "scalbln",
    "if f": "jn yn", "fp f": "frexp modf lgamma_r", "ffp f": "remquo", "fpp v": "sincos",
}  # fmt: skip
"""Functions of libm, which exist for ``float`` (``sinf``) and ``long double`` (``sinl``), too."""

_TYPES: dict[str, Type] = {
    "s": Pointer(Int(1, True)), "i": Int(4, True), "l": Int(8, True), "u": Int(8, False), "p": Pointer(VOID),
    "c": Int(4, True), "m": Int(4, False), "f": Float(8), "v": VOID,
    "n": Int(4, True), "k": Int(8, True),
}  # fmt: skip
_FORMS = {"s": "string", "m": "octal", "f": "lost", "v": "nothing"}


@cache
def _rows() -> dict[str, tuple[str, str]]:
    rows = (line.split() for line in TEXT.strip().splitlines())
    found = {name: (arguments.strip("-"), result) for name, arguments, result in rows}
    for form, names in MATHS.items():
        arguments, result = form.split()
        found |= {f"{name}{suffix}": (arguments, result) for name in names.split() for suffix in ("", "f", "l")}
    return found


def signature(name: str, machine: str, longest: int) -> tuple[tuple[Value, ...], Value] | None:
    """Arguments and result of a function; None if it is not known."""
    row = _rows().get(name)
    registers = REGISTERS.get(machine, ())
    if row is None or len(row[0]) > len(registers):
        return None
    arguments: list[Value] = []
    used = 0
    for letter in row[0]:
        if letter == "v":
            arguments.append(Value("", VOID, "rest"))
            continue
        if letter == "f":
            arguments.append(Value("", _TYPES[letter], "lost"))
            continue
        reads = (string(f"arg{used}", longest),) if letter == "s" else ()
        held = (RegisterPart(0, 8, registers[used]),)
        used += 1
        form = _FORMS.get(letter, "number")
        arguments.append(Value("", _TYPES[letter], form, reads, held, character=letter == "c"))
    letter = row[1]
    reads = (string("retval", longest),) if letter == "s" else ()
    result = Value("", _TYPES[letter], _FORMS.get(letter, "number"), reads, (RegisterPart(0, 8, "ax"),),
                   negative=letter in "nk")  # fmt: skip
    return tuple(arguments), result
