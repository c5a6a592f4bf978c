# shellcheck shell=bash
# What a run of the server's test runner came to, read out of what it printed. Sourced by mtr.sh.

# Tests that failed though nothing differs but the name of the engine in SHOW CREATE TABLE.
named_otherwise() {
    awk '/ \[ fail \]/ { name = $1 ($2 ~ /^\x27/ ? $2 : ""); old = new = ""; other = 0; next }
         / \[ (pass|skipped|disabled) / { name = "" }
         name == "" { next }
         /^(---|\+\+\+|@@)/ || /^ / || /^$/ { next }
         /^[-+]/ {
             side = substr($0, 1, 1); line = substr($0, 2)
             gsub(/ENGINE ?= ?[A-Za-z]+/, "ENGINE=", line)
             if (side == "-") old = old line "\n"; else new = new line "\n"
             next
         }
         /^Result (length|content) mismatch/ { if (old != "" && old == new) print name; name = "" }' "$1" | sort -u | tr '\n' ' '
}

# summary LOG AS_DEFAULT: what the runner printed about tests, in one line. True when all that it calls failed are such, and it
# went to its end and complains of nothing else: a server that ends badly or a lost worker has no failed test to show for it.
#
# Where a test fails, the runner does not ask which warnings that test expects, and shows them all when it stops the server:
# only what no test expects is a complaint then.
summary() {
    awk -v named="$(named_otherwise "$1")" -v as_default="$2" '
         function complain(words) { if (complaint == "") complaint = words }
         BEGIN {
             n = split(named, names, " ")
             for (i = 1; i <= n; i++) { only_name[names[i]] = 1; sub(/\x27.*/, "", names[i]); had_name[names[i]] = 1 }
         }
         / \[ (pass|fail|skipped|disabled) / {
             for (i = 2; i < NF && $i != "["; i++);
             result = $(i + 1)
             name = $1 ($2 ~ /^\x27/ ? $2 : "")
             if (result == "fail" && as_default && name in only_name) { result = "pass"; others++ }
             count[result]++
             if (result == "fail") failed = failed " " $1
         }
         /^\*\*\*Warnings generated in error logs during shutdown/ {
             sub(/.*tests: /, ""); excused = 0
             n = split($0, names, " ")
             for (i = 1; i <= n; i++) if (names[i] in had_name) excused = 1
             shown = 1
             next
         }
         shown && /^$/ && shown++ == 2 { shown = 0 }
         shown && /./ && (!excused || /Assertion|backtrace|got signal|Sanitizer|runtime error|\[ERROR\] FROND/) { complain($0) }
         /^Completed: Failed [0-9]+\// { split($3, parts, "/"); counted = parts[1] }
         /^Only +[0-9]+ +of [0-9]+ completed/ || /WARNING: Check myqltest warnings/ { complain($0) } # its own spelling
         /\*\*\* ERROR: / && !/there were failing test cases/ { complain($0) }
         END {
             printf "%d passed, %d failed, %d skipped, %d disabled", count["pass"], count["fail"], count["skipped"], count["disabled"]
             if (others) printf " (%d passed but for the name of the engine)", others
             printf "%s", failed == "" ? "" : ":" failed
             if (others && !count["fail"] && counted != others) complain("it did not come to its end")
             print complaint == "" ? "" : "; besides: " complaint
             exit !(others && !count["fail"] && complaint == "")
         }' "$1"
}

# reasons LOG: for each test that failed, what the runner said of it first, a few lines.
reasons() {
    awk -v most=12 '
         / \[ (pass|fail|skipped|disabled) / { name = / \[ fail / ? $1 : ""; said = 0; next }
         name == "" || said >= most || /^(---|\+\+\+) / { next }
         /^mysqltest: / || /^[-+]/ || /^At line / || /Test case timeout/ || /Server .* failed|crash/ { print name ": " $0; said++ }' "$1"
}
