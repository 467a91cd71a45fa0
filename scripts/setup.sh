# Sets up .venv once, for ./run, ./test and the Makefile.
#
# A script sources this file (POSIX sh) after it has set $root to the directory of the clone.
#
#   prepare EXTRAS   create or update .venv, with wend and at least EXTRAS ("sim" or "all,dev")
#   need_java        find a Java for Spark, or install one where possible
#
# The stamp in .venv records the installed extras, the files they came from, and the directory. The set-up replaces it
# in one step at the end. An interrupted set-up leaves the file .cache/setup-unfinished, and the next one starts from an
# empty .venv.

venv="$root/.venv"
stamp="$venv/.wend-stamp"
unfinished="$root/.cache/setup-unfinished"

# Caches of all tools stay inside the clone.
export XDG_CACHE_HOME="$root/.cache"
export MPLCONFIGDIR="$root/.cache/matplotlib"
export HYPOTHESIS_STORAGE_DIRECTORY="$root/.cache/hypothesis"
export SPARK_LOCAL_DIRS="$root/.cache/spark"
export PIP_NO_CACHE_DIR=1
export PIP_DISABLE_PIP_VERSION_CHECK=1
export PIP_NO_INPUT=1
export RUSTUP_HOME="$root/.cache/rustup" # pip runs rustc --version, and rustup would create its folder in the home directory
unset PIP_USER PIP_TARGET PIP_PREFIX PYTHONHOME

say() { printf '%s\n' "$*" >&2; }
fail() { say "wend: $*"; exit 1; }

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }
apt_install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >/dev/null
}

is_python() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
has_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

find_python() {
    for python in python3 python3.13 python3.12 python3.11; do
        if is_python "$python"; then return 0; fi
    done
    fail "needs Python 3.11 or newer (tried python3, python3.13, python3.12, python3.11); install one and run this again."
}

need_venv() {
    if has_venv "$python"; then return 0; fi
    if can_apt; then
        say "installing $python-venv ..."
        apt-get update -qq >/dev/null && apt_install "$python-venv"
    fi
    has_venv "$python" ||
        fail "$python cannot make virtual environments; install its venv module (Debian, Ubuntu: apt-get install $python-venv) and run this again."
}

# The first line of the stamp has the checksum of the files and the directory, the second the extras.
wanted_line() { printf '%s %s\n' "$(cat "$root/pyproject.toml" "$root/constraints.txt" | cksum)" "$root"; }
stamped() { [ -f "$stamp" ] && sed -n "$1p" "$stamp"; }

is_ready() {
    [ ! -e "$unfinished" ] && [ -x "$venv/bin/python" ] && [ "$(stamped 1)" = "$(wanted_line)" ] || return 1
    has_extras "$1"
}

has_extras() {
    for extra in $(printf '%s' "$1" | tr , ' '); do
        case ",$(stamped 2)," in *",$extra,"*) ;; *) return 1 ;; esac
    done
}

# The installed extras and the wanted ones, each once.
all_extras() { printf '%s,%s' "$(stamped 2)" "$1" | tr , '\n' | sed '/^$/d' | sort -u | paste -sd , -; }

is_usable() {
    [ ! -e "$unfinished" ] && is_python "$venv/bin/python" || return 1
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || return 1
    # Scripts in a .venv contain its path, so a moved one is created again.
    [ ! -f "$stamp" ] || case $(stamped 1) in *" $root") ;; *) return 1 ;; esac
}

install() {
    extras=$1
    if is_usable; then
        extras=$(all_extras "$extras")
        say "updating .venv (once, about a minute) ..."
    else
        find_python
        need_venv
        [ ! -L "$venv" ] || fail ".venv is a link, and a set-up would empty the directory that it leads to: remove the link."
        say "setting up .venv (once, about a minute) ..."
        : >"$unfinished"
        "$python" -m venv --clear "$venv" || fail "could not make .venv with $python."
    fi
    : >"$unfinished"
    status=0
    (cd "$root" && "$venv/bin/python" -m pip install -qq -c constraints.txt -e ".${extras:+[$extras]}") || status=$?
    if [ "$status" != 0 ]; then
        # pip downloads everything before it changes anything, so the old installation still works, unless a signal
        # ended pip.
        [ "$status" -gt 128 ] || rm -f "$unfinished"
        fail "pip could not install wend${extras:+ with $extras}; its message is above."
    fi
    { wanted_line; printf '%s\n' "$extras"; } >"$stamp.new"
    mv -f "$stamp.new" "$stamp"
    rm -f "$unfinished"
}

# Only one set-up runs at a time. The lock belongs to the open file, so the end of the process releases it. Python is
# the portable interface to flock(2) in a shell script.
lock() {
    find_python
    "$python" -c '
import fcntl, sys
try:
    fcntl.flock(0, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("waiting for another set-up of this clone ...", file=sys.stderr)
    fcntl.flock(0, fcntl.LOCK_EX)
' <&9
}

prepare() {
    if is_ready "$1"; then return 0; fi
    mkdir -p "$root/.cache"
    (
        trap 'exit 130' INT
        trap 'exit 143' TERM
        lock
        is_ready "$1" || install "$1"
    ) 9>"$root/.cache/setup.lock" || exit $?
}

is_java() {
    major=$("$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')
    [ -n "$major" ] && [ "$major" -ge 17 ]
}

find_java() {
    if [ -n "${JAVA_HOME:-}" ] && is_java "$JAVA_HOME/bin/java"; then return 0; fi
    if is_java java; then unset JAVA_HOME; return 0; fi
    for home in /usr/lib/jvm/*; do
        if is_java "$home/bin/java"; then export JAVA_HOME="$home"; return 0; fi
    done
    return 1
}

need_java() {
    if find_java; then return 0; fi
    if can_apt; then
        say "installing Java 17 ..."
        apt-get update -qq >/dev/null &&
            { apt_install openjdk-17-jre-headless || apt_install default-jre-headless; } 2>/dev/null
    fi
    find_java ||
        fail "Spark needs Java 17 or newer; install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) and run this again."
}
