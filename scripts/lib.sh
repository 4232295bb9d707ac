# What the scripts share: the project's folder, its Python environment, and system packages.
# Sourced by them; does nothing by itself but set `root` and `venv`.

root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
venv=${TASKWEAVER_VENV:-$root/.venv}

say() {
    printf '%s\n' "$*" >&2
}

fail() {
    printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
    exit 1
}

# Install Debian packages that are missing, where we may; say what is missing where we may not.
ensure_system_packages() {
    local package output missing=()
    for package in "$@"; do
        dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null |
            grep -qx installed || missing+=("$package")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        say "missing: ${missing[*]} (install with: sudo apt-get install ${missing[*]})"
        return 1
    fi
    say "Installing system packages: ${missing[*]}"
    # Another apt may be at work on a machine that has just started: wait for its lock.
    local options=(-qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
    export DEBIAN_FRONTEND=noninteractive
    apt-get "${options[@]}" update >/dev/null 2>&1 </dev/null ||
        say "warning: the package lists could not be brought up to date"
    if ! output=$(apt-get "${options[@]}" install --yes --no-install-recommends \
        "${missing[@]}" 2>&1 </dev/null); then
        say "$output"
        return 1
    fi
}

# Print the first Python that is new enough.
find_python() {
    local candidate candidates=(python3 python3.14 python3.13 python3.12 python3.11)
    [ -z "${TASKWEAVER_PYTHON:-}" ] || candidates=("$TASKWEAVER_PYTHON")
    for candidate in "${candidates[@]}"; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "Python 3.11 or newer is needed, and not found" \
        "install it (Debian 12: apt-get install python3), or set TASKWEAVER_PYTHON to it"
}

make_environment() {
    local python output
    python=$(find_python)
    say "Making a Python environment in $venv"
    rm -f "$venv/.installed"
    if output=$("$python" -m venv "$venv" 2>&1); then
        return
    fi
    say "$python cannot make one yet."
    ensure_system_packages python3-venv || true # Debian has that module in a package of its own
    if ! output=$("$python" -m venv "$venv" 2>&1); then
        say "$output"
        fail "$python cannot make a virtual environment in $venv" \
            "install its venv module (Debian: apt-get install python3-venv), then try again"
    fi
}

install_package() {
    local target=$1
    say "Installing the package and what it needs into $venv (takes a minute the first time)"
    if ! "$venv/bin/python" -m pip install --disable-pip-version-check --no-input \
        --editable "$target" >"$venv/install.log" 2>&1 </dev/null; then
        cat "$venv/install.log" >&2
        fail "the installation failed" "the lines above, also in $venv/install.log, say why"
    fi
}

# ensure_environment [EXTRA]: have the package, and what EXTRA of setup.cfg names, in $venv.
# A file there remembers what was installed, so that the next time costs a few milliseconds.
ensure_environment() {
    local extra=${1:-} stamp=$venv/.installed version
    version="$(cat "$root/setup.cfg" "$root/pyproject.toml" | cksum) $root"
    if [ -x "$venv/bin/python" ] && grep -qsxF "$version [$extra]" "$stamp"; then
        return
    fi
    mkdir -p "$venv"
    (
        # Two scripts that start together must not install into one folder at once.
        if command -v flock >/dev/null; then flock 9; fi
        # A first try without venv's package leaves a Python that has no pip.
        "$venv/bin/python" -m pip --version >/dev/null 2>&1 || make_environment
        if ! grep -qsxF "$version [$extra]" "$stamp"; then
            install_package "$root${extra:+[$extra]}"
            # What was installed for another version of the project does not count any more.
            grep -sF "$version" "$stamp" >"$stamp.new" || true
            printf '%s\n' "$version []" "$version [$extra]" >>"$stamp.new"
            mv "$stamp.new" "$stamp"
        fi
    ) 9>>"$venv/.lock"
}
