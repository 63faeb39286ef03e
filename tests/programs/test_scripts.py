#!/usr/bin/env python3
# test: timeout=120
"""perl and bash run scripts full of small strings, with the right output."""

from support import main, need

PERL = r"""
use strict;
my %count; my @words;
for my $i (1 .. 400_000) {
    my $word = sprintf("w%x", ($i * 2654435761) % 50_021);
    $count{$word}++;
    push @words, $word . "-" . $i if $i % 3 == 0;
}
my @best = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
my $text = join(" ", @words);
(my $other = $text) =~ s/(w[0-9a-f]+)-(\d+)/$2:$1/g;
my %tree;
push @{ $tree{ $_ % 1000 }{ $_ % 7 } }, { id => $_, name => "n$_" } for 1 .. 200_000;
my $sum = 0;
for my $key (sort { $a <=> $b } keys %tree) { $sum += scalar @$_ * $key for values %{ $tree{$key} } }
print scalar(@best), " @best[0 .. 9] ", length($text), " ", unpack("%32C*", $other), " $sum\n";
"""

BASH = r"""
declare -A count
text=
for ((i = 0; i < 60000; i++)); do
    word=w$((i * 7919 % 1009))
    count[$word]=$((${count[$word]:-0} + i))
    if ((i % 100 == 0)); then
        printf -v number %04d "$i"
        text="$text ${word^^}/$number"
    fi
done
for word in "${!count[@]}"; do echo "$word=${count[$word]}"; done | sort | cksum
echo "${#count[@]} ${#text} ${text//W/v}" | cksum
"""


def test(setup):
    perl, bash = need("perl", "perl"), need("bash", "bash")
    setup.require_bindings([perl, "-e", "1"])
    setup.require_bindings([bash, "-c", "true"], programs=["bash"])
    setup.compare(lambda allocator, _: allocator.run([perl, "-e", PERL]), refilled=200_000, calls=900_000)
    setup.compare(lambda allocator, _: allocator.run([bash, "-c", BASH]), refilled=5_000, calls=2_000_000)


main(test)
