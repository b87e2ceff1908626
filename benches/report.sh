#!/usr/bin/env bash
# Measures what the pages quote, two and a half hours on 2 CPUs: `bash benches/report.sh [FOLDER]`, by default
# benches/record/DATE-report.
#
# Each part is a folder. A part that is there is not measured again, so a run that was broken off goes on where it
# stopped, also on another day; but all parts must be of one commit. The machine must be quiet. Needs
# `apt-get install linux-perf haproxy etcd-server protobuf-compiler`, and 20 000 descriptors per process.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in perf haproxy etcd protoc; do
    command -v $tool >/dev/null || { echo "$tool is not installed" >&2; exit 1; }
done
commit=$(git describe --always --dirty --abbrev=10)
if [[ $commit == *-dirty ]]; then
    echo "the working tree has changes that no commit has: commit them, so that the record can name what was measured" >&2
    exit 1
fi
begun=$(grep -lsx "$commit" benches/record/*-report/COMMIT | tail -1 || true)
out=${1:-${begun:+$(dirname "$begun")}}
out=${out:-benches/record/$(date -u +%F)-report}
mkdir -p "$out"
# Pages name their commands, and no path of a machine belongs there.
out=$(realpath --relative-to=. "$out")
known=$(cat "$out/COMMIT" 2>/dev/null || echo "$commit")
if [[ $commit != "$known" ]]; then
    echo "$out has parts of commit $known, and this is $commit: check that commit out, or name another folder" >&2
    exit 1
fi
echo "$commit" >"$out/COMMIT"
ulimit -n 20000

failed=()
# part NAME COMMAND…: runs the command with the folder of the part as last argument.
part() {
    local name=$1 folder=$out/$1 began=$SECONDS job
    shift
    if [[ -d $folder && ! -e $folder/unfinished ]]; then return; fi
    echo "--- $name"
    rm -rf "$folder"
    mkdir "$folder"
    touch "$folder/unfinished"
    # A job of its own, because `set -e` has no effect inside of a condition.
    ("$@" "$folder") &
    job=$!
    if wait $job; then
        rm "$folder/unfinished"
        echo "| [$name]($name) | $((SECONDS - began)) |" >>"$out/README.md"
    else
        failed+=("$name")
    fi
}
# page TITLE COMMAND… FOLDER: a command whose output is its page.
page() {
    local title=$1 folder=${*: -1}
    shift
    {
        page_head "$title"
        echo '```text'
        "${@:1:$#-1}"
        echo '```'
    } >"$folder/README.md"
}
page_head() {
    echo "# $1"
    echo
    echo "- command: \`bash benches/report.sh\`"
    echo "- date: $(date -u +%FT%TZ), commit: $commit"
    echo "- $(rustc --version), Linux $(uname -r)"
    echo "- $(nproc) x $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -1)"
    echo
}

compare() { target/release/compare "$@"; }
# The databases are in memory.
suite() { TMPDIR=/dev/shm compare --only "$1" --out "$2"; }
servers() { compare --servers "$@"; }
published() {
    suite published "$1"
    compare pool --json "$1/pool.json" | tee "$1/pool.md"
}
share() { TMPDIR=/dev/shm target/frames/release/compare --only share --rounds 21 --out "$1"; }
bench() { cargo bench --quiet --bench "$@"; }
# A bench runs in the folder of its package.
abuse() { bench abuse -- --out "../$1"; }
txn_kv() { target/release/txn_kv "$@"; }
etcd_compare() { benches/etcd/target/release/etcd-compare --server target/release/txn_kv "$@"; }

# Sessions that run at once and sessions that are queued, by the events of each wait.
in_place() {
    local pid login
    echo "| load | sessions | events a wait | queued | in place |"
    echo "|---|--:|--:|--:|--:|"
    for events in 1 4 16; do
        for mode in select1 sql; do
            for sessions in 64 256 1024; do
                coproc node {
                    exec target/release/select1 serve --listen 127.0.0.1:0 --user root --password secret \
                        --set epoll_events_per_thread=$events
                }
                pid=$node_PID
                read -r _ _ address <&"${node[0]}"
                login=(--connect "$address" --user root --password secret)
                target/release/select1 load "${login[@]}" --sessions $sessions --connections 16 --mode $mode \
                    --seconds 3 --json >/dev/null
                target/release/xsql "${login[@]}" -e "show status like '%session_runs%'" | awk \
                    -v row="| $mode | $sessions | $events |" \
                    '/inline/ { inline = $3 } /queued/ { queued = $3 } END { print row, queued, "|", inline, "|" }'
                kill "$pid"
                wait "$pid" || true
            done
        done
    done
}

# No build runs beside a measurement.
cargo build --release -p compare -p select1 -p xsql -p txn_kv
# With frame pointers `perf` finds the callers of the kernel.
RUSTFLAGS="-C force-frame-pointers=yes" CFLAGS=-fno-omit-frame-pointer \
    cargo build --release --target-dir target/frames -p compare
cargo bench --no-run
cargo build --release --locked --manifest-path benches/etcd/Cargo.toml --target-dir benches/etcd/target

[[ -e $out/README.md ]] || {
    page_head "All measurements of one commit"
    echo "| part | seconds |"
    echo "|---|--:|"
} >"$out/README.md"
for name in paced churn echo select1 points hot large sharded slow_links splice tls locks many scaling model; do
    part $name suite $name
done
part published published
part share share
part connections servers limit,epoll-group,uv,tokio,limit --connections 128,512,1024 --rounds 41 --window-ms 250 --out
part churn-41 servers limit,epoll-group,uv,tokio,limit --churn --connections 64 --rounds 41 --window-ms 250 --out
part pipeline servers limit,epoll-group,limit --connections 16 --pipeline 32 --out
binding=epoll-group,epoll-group:bind=1,epoll-group:bind=0,epoll-group
part binding servers $binding --connections 4,64,512 --rounds 41 --window-ms 250 --out
part binding-scans servers $binding --connections 64 --think-us 6400 --heavy 4:5000 --rounds 41 --out
part in-place page 'Sessions in place and queued' in_place
part abuse abuse
part codec page 'Codec' bench codec
part client page 'Who reads for callers' bench client -- --long
part waits page 'Handlers that wait' bench scaling
part hand-out page 'A pool hands out' bench pool
part designs-memory txn_kv designs --out
part designs-disk txn_kv designs --disk --out
part commits txn_kv commits --pairs 15 --out
part marks txn_kv published --out
part etcd etcd_compare --out
part etcd-published etcd_compare --published --pairs 9 --out
compare summary "$out" >"$out/summary.md"
compare charts "$out/published" >"$out/published.svg"
echo "The record is $out."
if ((${#failed[@]})); then
    echo "failed: ${failed[*]}; run it again for these" >&2
    exit 1
fi
