#!/usr/bin/env bash
# Trains the embedded model anew: the text from Debian's archive (needs apt-get, dpkg-deb and python3), the rest by `noren train`.
# One thread, a quarter of an hour on the machine of docs/model-card.md when it is idle; it goes on from where it was stopped.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-$(mktemp -d)}
cd "$work"
if [ ! -f austen.txt ]; then
    apt-get download r-cran-janeaustenr
    dpkg-deb -x r-cran-janeaustenr_*.deb package
    python3 "$here/text.py" package/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb > austen.txt
fi
# Tensors of a step are as large as those of the last: memory that is kept need not be asked for again.
export MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=8000000000 MALLOC_TOP_PAD_=268435456
export RAYON_NUM_THREADS=${RAYON_NUM_THREADS:-1}
cargo run --release --manifest-path "$here/../../Cargo.toml" -- \
    train --data austen.txt --objective both --config "$here/train.json" -o model
cp model/model.safetensors model/config.json "$here/"
cp model/loss.svg "$here/../../../../../docs/pictures/model-loss.svg"
# What tests take for words: the 3000 most frequent of the text.
tr 'A-Z' 'a-z' < austen.txt | grep -oE '[a-z]+' | sort | uniq -c | sort -k1,1nr -k2 | head -3000 | awk '{print $2}' |
    grep -E '..|a|i' | LC_ALL=C sort > "$here/words.txt"
