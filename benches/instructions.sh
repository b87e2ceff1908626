#!/usr/bin/env bash
# User-space instructions and looks at the clock per request of the echo server, with histograms off
# and on, counted by callgrind. Two loads of different length; what differs is the requests' share. There
# are pauses between requests, because a request takes so long under callgrind that the next one would arrive meanwhile.
#
# Usage: benches/instructions.sh [CONNECTIONS] [FILE FOR THE RAW NUMBERS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

connections=${1:-1}
raw=${2:-/dev/null}
target_dir=${CARGO_TARGET_DIR:-target}
cargo build --quiet --release -p examples --example echo
echo_bin=$target_dir/release/examples/echo
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# counted ON|OFF SECONDS: sets instructions, clocks and requests.
counted() {
    local profile=$scratch/profile log=$scratch/log address=unix:$scratch/echo admin=unix:$scratch/admin
    rm -f "$profile" "$scratch/echo" "$scratch/admin"
    valgrind --tool=callgrind --callgrind-out-file="$profile" "$echo_bin" serve \
        --listen "$address" --admin "$admin" --set epoll_groups=1 --set enable_perf_hist="$1" \
        >"$log" 2>&1 &
    local server=$!
    for _ in $(seq 300); do
        if grep -q '^admin on' "$log"; then break; fi
        sleep 0.1
    done
    "$echo_bin" load --connect "$address" --connections "$connections" --size 64 --think-us 50 \
        --seconds "$2" \
        >/dev/null 2>&1
    requests=$("$echo_bin" admin --connect "$admin" stats | awk '$1 == "receives" { print $2 }')
    kill -TERM "$server"
    wait "$server"
    instructions=$(awk '/^totals:|^summary:/ { print $2; exit }' "$profile")
    clocks=$(awk '/^cfn=/ { clock = named($0) }
                  /^fn=/ { named($0) }
                  /^calls=/ && clock { split($1, of, /[= ]/); sum += of[2] }
                  function named(line,    id) {
                      match(line, /\([0-9]+\)/)
                      id = substr(line, RSTART, RLENGTH)
                      if (line ~ /\) /) { is[id] = line ~ /clock_gettime/ }
                      return is[id]
                  }
                  END { print sum + 0 }' "$profile")
}

printf '%-12s %24s %24s\n' histograms instructions/request 'looks at clock/request'
for hist in off on off on; do
    counted "$hist" 2
    less=("$instructions" "$clocks" "$requests")
    counted "$hist" 8
    awk -v hist="$hist" -v i="$instructions" -v c="$clocks" -v r="$requests" \
        -v i0="${less[0]}" -v c0="${less[1]}" -v r0="${less[2]}" -v raw="$raw" 'BEGIN {
            printf "%-12s %24.0f %24.2f\n", hist, (i - i0) / (r - r0), (c - c0) / (r - r0)
            print hist, i0, c0, r0, i, c, r >>raw
        }'
done
