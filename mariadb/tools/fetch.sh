#!/usr/bin/env bash
# Fetches the stock MariaDB 10.11 and the headers of exactly its version into a private folder. Nothing is installed
# by this script, no service is started, and the machine's apt configuration is read, never changed.
#
#   fetch.sh missing-tools       prints the Debian packages that fetching and building still want
#   fetch.sh packages            downloads and unpacks the server, its tests and its source
#   fetch.sh missing-libraries   prints the Debian packages that the unpacked server still wants
#   fetch.sh headers             puts the headers that a storage engine needs in one place
#
# Which version: MARIADB_VERSION if given; else that of the server installed on this machine, because a plugin for it is
# what is wanted; else the newest 10.11 whose packages and source can both be downloaded (a point release may be
# offered before its source is to be had). Every step leaves a stamp and is skipped when done.
#
# The generated headers (my_config.h, mysqld_error.h, …) are those of the packages, so they describe the very build
# that will load the plugin; a configure run on this machine would find other things installed and differ.

source "$(dirname "$0")/common.sh"

packages=(
    mariadb-server mariadb-server-core mariadb-client mariadb-client-core mariadb-common libmariadb3
    mariadb-backup mariadb-plugin-rocksdb mariadb-test mariadb-test-data
    libmariadb-dev libmariadbd-dev # the generated headers and libmysqlservices.a
)

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# apt with its state in the private folder and the source packages of the configured suites switched on.
private_apt() {
    local command=$1
    shift
    "$command" -o Dir::Etc::sourcelist="$stock/apt/sources.list" -o Dir::Etc::sourceparts="$stock/apt/sources.list.d" \
        -o Dir::State::lists="$stock/apt/lists" -o Dir::Cache="$stock/apt/cache" -o APT::Sandbox::User=root "$@"
}

set_up_apt() {
    rm -rf "$stock/apt"
    mkdir -p "$stock/apt/sources.list.d" "$stock/apt/lists/partial" "$stock/apt/cache/archives/partial"
    touch "$stock/apt/sources.list"
    local file
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -e "$file" ] || continue
        sed -n 's/^deb\(-src\)\{0,1\}[[:space:]]\(.*\)/deb \2\ndeb-src \2/p' "$file" >>"$stock/apt/sources.list"
    done
    sort -u -o "$stock/apt/sources.list" "$stock/apt/sources.list"
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -e "$file" ] || continue
        sed 's/^Types:.*/Types: deb deb-src/' "$file" >"$stock/apt/sources.list.d/$(basename "$file")"
    done
    say "reading the package lists of the configured apt sources (about 25 MB)"
    private_apt apt-get update -qq || say "not all package lists could be read; going on with those that could"
}

wanted_versions() {
    if [ -n "${MARIADB_VERSION:-}" ]; then
        echo "$MARIADB_VERSION"
    elif installed mariadb-server; then
        dpkg-query -W -f '${Version}\n' mariadb-server
    else
        private_apt apt-cache madison mariadb-server | awk '$3 ~ /^(1:)?10\.11\./ { print $3 }' | sort -ruV
    fi
}

megabytes() { # of packages in a version
    local version=$1 package
    shift
    for package in "$@"; do
        private_apt apt-cache show "$package=$version"
    done | awk '/^Size:/ { sum += $2 } END { printf "%d", sum / 1000000 }'
}

# Downloads source and binary packages of one version into $stock/debs; fails when one of them is not to be had.
download() {
    local version=$1 package names=()
    rm -rf "$stock/debs"
    mkdir -p "$stock/debs"
    for package in "${packages[@]}"; do
        names+=("$package=$version")
    done
    say "downloading the source of mariadb-server $version (about 115 MB)"
    (cd "$stock/debs" && private_apt apt-get source -qq --download-only "mariadb-server=$version") >"$stock/download.log" 2>&1 ||
        return 1
    say "downloading ${#packages[@]} packages ($(megabytes "$version" "${packages[@]}") MB): ${packages[*]}"
    (cd "$stock/debs" && private_apt apt-get download -qq "${names[@]}") >"$stock/download.log" 2>&1
}

fetch_packages() {
    if [ -e "$stock/packages.done" ]; then
        local have
        have=$(<"$stock/version")
        [ "${MARIADB_VERSION:-$have}" = "$have" ] ||
            die "$stock holds MariaDB $have, not $MARIADB_VERSION: remove that folder or name another by FROND_SERVER_DIR"
        return
    fi
    local free
    free=$(df --output=avail -k "$stock" | tail -1)
    [ "$free" -ge 2000000 ] || die "the stock server takes 2 GB and $stock has $((free / 1000)) MB free"
    set_up_apt
    local version deb chosen=
    for version in $(wanted_versions); do
        if download "$version"; then
            chosen=$version
            break
        fi
        say "packages or source of $version cannot be had: $(grep -m 1 '^E:' "$stock/download.log" | sed 's|[a-z]*://[^ ]*/||; s| *\[IP.*||')"
    done
    [ -n "$chosen" ] || die "no MariaDB 10.11 with its source is offered by this machine's apt sources; see $stock/download.log"
    say "unpacking MariaDB $chosen into $prefix"
    rm -rf "$prefix" "$stock/source"
    for deb in "$stock"/debs/*.deb; do
        dpkg-deb -x "$deb" "$prefix"
    done
    say "unpacking its source"
    dpkg-source --no-check --no-copy -x "$stock"/debs/*.dsc "$stock/source" >"$stock/source.log" 2>&1 ||
        die "the source package cannot be unpacked; see $stock/source.log"
    find "$stock/source" -mindepth 1 -maxdepth 1 \
        ! -name include ! -name sql ! -name wsrep-lib ! -name COPYING ! -name debian -exec rm -rf {} +
    library_dependencies >"$stock/libraries"
    rm -rf "$stock/debs" "$stock/apt"
    echo "$chosen" >"$stock/version"
    touch "$stock/packages.done"
}

# One line for each library that the packages depend on: its name, or the names of its alternatives.
library_dependencies() {
    local deb
    for deb in "$stock"/debs/*.deb; do
        [[ $deb == *-dev_* ]] || dpkg-deb -f "$deb" Depends | tr ',' '\n'
    done | sed 's/([^)]*)//g; s/:any//g; s/|/ /g' | grep -E '^ *lib' | grep -v -- '-perl' | sort -u
}

# The libraries that the unpacked packages depend on and this machine lacks, and what mysql-test-run calls.
missing_libraries() {
    local wish name found missing=() ours=" ${packages[*]} "
    while read -r -a wish; do
        found=
        for name in "${wish[@]}"; do
            if installed "$name" || [[ $ours == *" $name "* ]]; then
                found=yes
            fi
        done
        [ -n "$found" ] || missing+=("${wish[0]}")
    done < <(printf '%s\n' perl patch procps && cat "$stock/libraries")
    echo "${missing[*]:-}"
}

missing_tools() {
    local name missing=()
    for name in g++ make dpkg-dev binutils; do
        installed "$name" || missing+=("$name")
    done
    echo "${missing[*]:-}"
}

make_headers() {
    [ ! -e "$stock/headers.done" ] || return 0
    say "putting the headers of MariaDB $(<"$stock/version") into $headers"
    local packaged=$prefix/usr/include/mariadb/server file
    rm -rf "$headers"
    mkdir -p "$headers"
    for file in my_config.h mysql_version.h mysqld_error.h mysqld_ername.h; do
        cp "$packaged/$file" "$headers/" || die "libmariadbd-dev of this version does not have $file"
    done
    cp "$stock/source/include/probes_mysql_nodtrace.h.in" "$headers/probes_mysql_nodtrace.h"
    cp "$(find "$prefix" -name libmysqlservices.a)" "$headers/"
    touch "$stock/headers.done"
}

mkdir -p "$stock"
exec 9>"$stock/.lock"
flock 9
case ${1:-} in
missing-tools) missing_tools ;;
packages) fetch_packages ;;
missing-libraries) missing_libraries ;;
headers) make_headers ;;
*) die "say missing-tools, packages, missing-libraries or headers" ;;
esac
