#!/usr/bin/env bash
# A private stock MariaDB server with the plugin of this checkout, FROND its default engine, reached by a socket.
#
#   server.sh start [OPTION...]   starts it; options after that go to mariadbd, as those in FROND_SERVER_OPTIONS do
#   server.sh stop                stops it
#   server.sh status              says whether it runs
#   server.sh client [...]        a SQL prompt on it; arguments go to the client
#
# Environment: PORT (listen on that TCP port of this machine as well), FROND_SERVER_DIR (the fetched server),
# FROND_DATA (the data directory; target/mariadb/data), FROND_SERVER_WAIT (seconds it may take to come up; 120).

source "$(dirname "$0")/common.sh"

data=$(realpath -m "${FROND_DATA:-$out/data}")
run=$data.run # pid, socket and error log stand beside the data, so that the data directory holds databases only
pid_file=$run/pid
error_log=$run/error.log
wait_seconds=${FROND_SERVER_WAIT:-120}
free_megabytes_min=500

# Who reaches the socket is the server's root, without a password, so its folder is the caller's alone. A socket's address holds 107 bytes; a deep
# checkout gets a folder in /tmp that is named after its own.
socket_folder=$run
if [ "${#run}" -gt 90 ]; then
    socket_folder=/tmp/frond-$(id -u)-$(cksum <<<"$run" | cut -d' ' -f1)
fi
socket=$socket_folder/socket
client=("$prefix/usr/bin/mariadb" --no-defaults --socket="$socket" --user=root --database=test)

# The file outlives a machine that went down, and its number may be that of the machine's own server by now: ours is the one on
# our data.
server_pid() {
    local pid
    pid=$(cat "$pid_file" 2>/dev/null) || return 1
    [[ "$(readlink "/proc/$pid/exe" 2>/dev/null)" == */mariadbd* ]] || return 1
    grep -qzxF -e "--datadir=$data" "/proc/$pid/cmdline" 2>/dev/null && echo "$pid"
}

answers() {
    "$prefix/usr/bin/mariadb-admin" --no-defaults --socket="$socket" --user=root ping >/dev/null 2>&1
}

show_error_log() {
    echo "$tool: the end of $error_log:" >&2
    tail -n 25 "$error_log" >&2 || true
}

enough_space() {
    local free
    free=$(df --output=avail -k "$run" | tail -1)
    [ "$((free / 1000))" -ge "$free_megabytes_min" ] ||
        die "no disk space: $data has $((free / 1000)) MB free, and a server wants $free_megabytes_min MB"
}

# The folder that the server loads plugins from: its own ones, linked, and ours.
fill_plugin_dir() {
    [ -e "$plugin_dir/ha_frond.so" ] || die "the plugin is missing: $plugin_dir/ha_frond.so; run 'make plugin'"
    local library
    for library in "$prefix"/usr/lib/mysql/plugin/*.so; do
        [ ! -e "$library" ] || ln -sf "$library" "$plugin_dir/"
    done
}

create_data() {
    [ ! -d "$data/mysql" ] || return 0
    say "creating a data directory in $data"
    rm -rf "$data.new"
    mkdir -p "$data.new"
    "$prefix/usr/bin/mariadb-install-db" --no-defaults --basedir="$prefix/usr" --datadir="$data.new" "${as_user[@]}" \
        --auth-root-authentication-method=normal --skip-name-resolve --force >"$run/install.log" 2>&1 ||
        { tail -25 "$run/install.log" >&2; die "the data directory could not be created; see $run/install.log"; }
    mv "$data.new" "$data"
}

own_folders() {
    local folder
    for folder in "$run" "$socket_folder"; do
        mkdir -p -m 700 "$folder"
        [ -O "$folder" ] || die "$folder belongs to somebody else, who could reach the server there: remove it, or name another FROND_DATA"
        chmod 700 "$folder"
    done
}

# Whoever is on this machine could come by TCP.
drop_accounts_without_password() {
    "${client[@]}" --batch --skip-column-names --execute="
        SELECT CONCAT('DROP USER ', QUOTE(user), '@', QUOTE(host), ';') FROM mysql.user
        WHERE user = 'root' AND host <> 'localhost' AND authentication_string = '' AND plugin IN ('', 'mysql_native_password')" |
        "${client[@]}" || say "note: accounts of root that have no password and are not of the socket could not be dropped"
}

start() {
    require_stock
    local pid network=(--skip-networking)
    own_folders
    if pid=$(server_pid); then
        say "already running, pid=$pid"
        [ "$plugin_dir/ha_frond.so" -ot "$pid_file" ] || say "its plugin is older than the built one: 'make server-stop' first"
        show_client
        return
    fi
    if [ -n "${PORT:-}" ]; then
        ! (: <"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null || die "port in use: something else listens on PORT=$PORT"
        # Without names: one that comes from this machine by TCP is not root@localhost.
        network=(--bind-address=127.0.0.1 --port="$PORT" --skip-name-resolve)
    fi
    enough_space
    fill_plugin_dir
    create_data
    rm -f "$socket"
    : >"$error_log"
    say "starting MariaDB $(<"$stock/version") with FROND as its default engine"
    # shellcheck disable=SC2086  # several options in one variable
    setsid "$prefix/usr/sbin/mariadbd" --no-defaults --basedir="$prefix/usr" --datadir="$data" "${as_user[@]}" \
        --lc-messages-dir="$prefix/usr/share/mysql" --plugin-dir="$plugin_dir" \
        --plugin-load-add=ha_frond --default-storage-engine=FROND \
        --socket="$socket" --pid-file="$run/server.pid" "${network[@]}" ${FROND_SERVER_OPTIONS:-} "$@" \
        >>"$error_log" 2>&1 </dev/null 9>&- &
    pid=$!
    echo "$pid" >"$pid_file"
    local deadline=$((SECONDS + wait_seconds))
    until answers; do
        if has_ended "$pid"; then
            rm -f "$pid_file"
            show_error_log
            die "the server did not come up"
        fi
        if [ "$SECONDS" -ge "$deadline" ]; then
            show_error_log
            die "the server does not answer after $wait_seconds s, pid=$pid; 'server.sh stop' ends it"
        fi
        sleep 0.1
    done
    drop_accounts_without_password
    say "it runs, pid=$pid data=$data error_log=$error_log${PORT:+ port=$PORT, for accounts that you create (CREATE USER x@127.0.0.1 ...)}"
    show_client
}

show_client() {
    echo "the client:"
    echo "  ${client[*]}"
}

stop() {
    local pid waited=0
    if ! pid=$(server_pid); then
        say "it does not run"
        return
    fi
    say "stopping it, pid=$pid"
    kill "$pid"
    until has_ended "$pid"; do
        if [ "$((waited += 1))" -gt "$((wait_seconds * 10))" ]; then
            show_error_log
            die "it does not stop, pid=$pid"
        fi
        sleep 0.1
    done
    rm -f "$pid_file"
    say "stopped"
}

status() {
    local pid
    if ! pid=$(server_pid); then
        say "it does not run"
        exit 3
    fi
    answers || die "it runs but does not answer, pid=$pid; see $error_log"
    say "it runs, pid=$pid data=$data"
    show_client
}

case ${1:-} in
start) start "${@:2}" ;;
stop) stop ;;
status) status ;;
client)
    require_stock
    server_pid >/dev/null || die "the server does not run: 'make server' starts it"
    exec "${client[@]}" "${@:2}"
    ;;
*) die "say start, stop, status or client" ;;
esac
