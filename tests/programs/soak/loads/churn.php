<?php
// What PHP does on both allocators: every line is a digest that must be the same.
mt_srand(7);

function words(int $count): array
{
    $words = [];
    for ($i = 0; $i < $count; $i++) {
        $words[] = str_repeat(dechex(mt_rand()), 1 + $i % 40);
    }
    return $words;
}

function digest(string $what, mixed $value): void
{
    echo $what, " ", md5(serialize($value)), "\n";
}

$words = words(30000);
$index = [];
foreach ($words as $place => $word) {
    $index[substr($word, 0, 3)][] = $place;
}
ksort($index);
digest("index", $index);
digest("json", json_decode(json_encode(["words" => array_slice($words, 0, 5000), "index" => $index]), true));
digest("expressions", preg_replace_callback('/([a-f]+)(\d+)/', fn($m) => strrev($m[1]) . strlen($m[2]), implode(" ", $words)));
usort($words, fn($a, $b) => strlen($a) <=> strlen($b) ?: strcmp($a, $b));
digest("sorted", $words);

class Node
{
    public ?Node $other = null;

    public function __construct(public string $text, public array $children = [])
    {
    }
}

$kept = [];
for ($round = 0; $round < 20; $round++) {
    for ($i = 0; $i < 2000; $i++) {
        $node = new Node(str_repeat("n", $i % 700), [$i, $i * 2]);
        $node->other = new Node("back", [$node]);   // a cycle for the collector
        if ($i % 50 === $round) {
            $kept[] = $node->text;
        }
    }
    gc_collect_cycles();
}
digest("objects", $kept);
$text = "";
for ($i = 0; $i < 200000; $i++) {
    $text .= chr(97 + $i * 7 % 26);
}
digest("text", [$text, ucwords(wordwrap($text, 10, " ", true)), similar_text(substr($text, 0, 900), substr($text, 5, 900))]);
if (function_exists("gzcompress")) {
    digest("compressed", gzuncompress(gzcompress($text, 9)));
}
$generator = (function () {
    for ($i = 0; $i < 50000; $i++) {
        yield str_repeat("y", $i % 90) => $i;
    }
})();
$sum = 0;
foreach ($generator as $key => $value) {
    $sum += strlen($key) * $value;
}
digest("generated", $sum);
