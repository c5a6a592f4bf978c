#!/usr/bin/env bash
# Packs the built plugin as mariadb-plugin-frond for Debian, into target/mariadb. It depends on exactly the server version
# that it was built for, because the server loads no other; so it is built anew for each of the server's point releases.
# Installing it restarts the server, which then has the engine: Debian's server package does that for a new file in /etc/mysql where there
# is no systemd, and this one where there is.
#
# Environment: MARIADB_VERSION (pack for another server than this machine's).

source "$(dirname "$0")/common.sh"

name=mariadb-plugin-frond
require_stock
plugin=$plugin_dir/ha_frond.so
[ -e "$plugin" ] || die "the plugin is missing: $plugin; run 'make plugin'"

server_version=$(<"$stock/version") # 1:10.11.18-0+deb12u1
upstream=${server_version#*:}
upstream=${upstream%%-*}
frond_version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$repo/Cargo.toml" | head -1)
# Grows with each change that is packed, or the packages' manager would take a new one for the old one; and with the server's version.
if [ -z "$(git -C "$repo" status --porcelain 2>/dev/null || echo unknown)" ]; then
    build=$(TZ=UTC0 git -C "$repo" log -1 --format=%cd.%h --abbrev=8 --date=format-local:%Y%m%d%H%M%S)
else
    build=$(date -u +%Y%m%d%H%M%S).local
fi
version=$frond_version+r$build+mariadb${server_version#*:} # a letter behind that of mariadb, which stood there before
architecture=$(dpkg --print-architecture)
package=${name}_${version}_$architecture.deb

on_this_machine=$(dpkg-query -W -f '${Version}' mariadb-server 2>/dev/null || true)
if [ -n "$on_this_machine" ] && [ "$on_this_machine" != "$server_version" ]; then
    [ "${MARIADB_VERSION:-}" = "$server_version" ] ||
        die "this machine's server is $on_this_machine, and $stock holds $server_version: remove that folder and run 'make deb' again, or" \
            "name another by FROND_SERVER_DIR; MARIADB_VERSION=$server_version packs for the one that it holds"
    say "note: this machine's server is $on_this_machine, and the package is for $server_version"
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/DEBIAN" "$root/usr/lib/mysql/plugin" "$root/etc/mysql/mariadb.conf.d" "$root/usr/share/doc/$name"
chmod -R u=rwX,go=rX "$root"
umask 022

strip --strip-unneeded -o "$root/usr/lib/mysql/plugin/ha_frond.so" "$plugin"
chmod 644 "$root/usr/lib/mysql/plugin/ha_frond.so"

cat >"$root/etc/mysql/mariadb.conf.d/frond.cnf" <<'END'
# Loads the FROND storage engine. SHOW ENGINES lists it, ENGINE=FROND uses it.
[mariadb]
plugin_load_add = ha_frond
# A server whose FROND cannot start does not start: with a binary log it would recover without FROND, and never again with it. One without this
# package does start, so do not remove it before a recovery.
loose_frond = FORCE

# To make it the engine of tables that do not name one:
# default_storage_engine = FROND
END
echo /etc/mysql/mariadb.conf.d/frond.cnf >"$root/DEBIAN/conffiles"

cat >"$root/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke try-restart mariadb.service ||
        echo "mariadb-plugin-frond: the server did not restart; see its error log: journalctl -u mariadb" >&2
fi
END
chmod 755 "$root/DEBIAN/postinst"

# The crates that are linked in (macros run in the compiler and are not), and the notices that they ask to pass on.
(cd "$repo" && ${CARGO:-cargo} tree --quiet --locked -p fronddb-capi -e normal --prefix none -f '{p}|{l}') |
    grep -v '(proc-macro)' | sed 's/ ([^)]*)|/|/; s/ (\*)$//; s/|/: /' | LC_ALL=C sort -u >"$root/crates"
while read -r crate crate_version _; do
    crate_version=${crate_version#v}
    for source in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$crate-${crate_version%:}"; do
        [ -d "$source" ] || continue
        find "$source" -maxdepth 2 -type f \( -iname 'license*' -o -iname 'copyright*' \) -printf '%P\n' | while read -r notice; do
            install -D -m 644 "$source/$notice" "$root/usr/share/doc/$name/licences/$crate/${notice//\//-}"
        done
    done
done <"$root/crates"

{
    cat <<'END'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: FrondDB
Comment:
 The plugin includes the headers of MariaDB Server, which is GPL-2, and links FrondDB's engine statically. Of the
 licences that parts of it offer as a choice, the MIT licence is taken.

Files: *
Copyright: The FrondDB authors
License: GPL-2+
 This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
 License as published by the Free Software Foundation; either version 2 of the License, or (at your option) any later
 version.
 .
 On Debian systems, the text of version 2 is in /usr/share/common-licenses/GPL-2.

Comment: The following crates are linked in, each under the licence named after it; their notices are in licences/.
END
    sed 's/^/ /' "$root/crates"
    echo
    echo "License: MIT"
    sed '1,2d; s/^$/./; s/^/ /' "$repo/LICENSE-MIT"
} >"$root/usr/share/doc/$name/copyright"
rm "$root/crates"

# What the plugin wants of the C and C++ libraries, by Debian's own reckoning.
mkdir "$root/debian"
printf 'Source: %s\n\nPackage: %s\nArchitecture: any\n' "$name" "$name" >"$root/debian/control"
libraries=$(cd "$root" && dpkg-shlibdeps -O usr/lib/mysql/plugin/ha_frond.so 2>"$out/shlibdeps.log" | sed -n 's/^shlibs:Depends=//p')
rm -r "$root/debian"
[ -n "$libraries" ] || die "dpkg-shlibdeps does not say what the plugin needs; see $out/shlibdeps.log"

cat >"$root/DEBIAN/control" <<END
Package: $name
Version: $version
Architecture: $architecture
Maintainer: The FrondDB authors <fronddb@invalid>
Section: database
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: mariadb-server (= $server_version), $libraries
Description: FROND storage engine for MariaDB
 FROND is a transactional storage engine on fractal trees: writes that cost
 a fraction of a B-tree's, in tables far larger than memory, and a start-up
 after a crash that does not depend on how much was written.
 This package contains the plugin for MariaDB $upstream.
END
(cd "$root" && find etc usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"

rm -f "$out/${name}"_*.deb
dpkg-deb --root-owner-group --build "$root" "$out/$package" >/dev/null
say "$out/$package"
say "install it by: apt-get install $out/$package"
