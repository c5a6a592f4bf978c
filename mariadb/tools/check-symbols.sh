#!/usr/bin/env bash
# check-symbols.sh PLUGIN: fails when the plugin wants a symbol that neither the stock server nor a library of the
# plugin's has, when it does not show its declaration, or when it shows more than the server looks up. A linker cannot tell, because a plugin's
# symbols are resolved in the server when it is loaded; then a missing one ends the server at its first call.

source "$(dirname "$0")/common.sh"

plugin=$1
[ -e "$plugin" ] || die "there is no plugin $plugin"

symbols() { # defined or undefined dynamic symbols of files, without versions
    nm -D "--$1-only" "${@:2}" 2>/dev/null | awk 'NF >= 2 && $(NF - 1) != "w" { print $NF }' | sed 's/@.*//' | sort -u
}

mapfile -t libraries < <(ldd "$plugin" | awk '$3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }')
missing=$(comm -13 <(symbols defined "$prefix/usr/sbin/mariadbd" "${libraries[@]}") <(symbols undefined "$plugin"))
[ -z "$missing" ] || die "the server has no such symbols:
$(c++filt <<<"$missing" | sed 's/^/  /')"

[[ "$(symbols defined "$plugin")" == *_maria_plugin_declarations_* ]] || die "the plugin shows no declaration"

leaked=$(symbols defined "$plugin" | grep -vE '^_maria_|_service(_[a-z0-9]+)?$|^print_check_msg_context$' || true)
[ -z "$leaked" ] || die "the plugin shows symbols of its own:
$(c++filt <<<"$leaked" | head -20 | sed 's/^/  /')"
