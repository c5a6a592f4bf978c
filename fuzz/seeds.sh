#!/usr/bin/env bash
# Writes the seed corpora anew, by encoding real values with the present code.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo test -p fronddb --test it -- --ignored --exact fuzz_seeds::write_the_seeds
