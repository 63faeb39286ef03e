<?php
// What PHP's own code and its extensions allocate, in one run; prints one checksum per part. An extension that is not there is
// left out. Run by test_php.py.

function values(int $count): array
{
    $found = [];
    for ($i = 0; $i < $count; $i++)
        $found['key ' . $i * 7919 % $count] = str_repeat(chr(97 + $i % 26), $i % 300);
    return $found;
}

function arrays(): string
{
    $values = values(60000);
    ksort($values);
    $lengths = array_map('strlen', $values);
    usort($lengths, fn($a, $b) => $b <=> $a);
    $copy = unserialize(serialize($values));
    return md5(json_encode([$copy === $values, array_slice($lengths, 0, 5), array_sum($lengths)]) . implode('', $values));
}

function strings(): string
{
    $text = '';
    for ($i = 0; $i < 40000; $i++)
        $text .= sprintf('%05d %s; ', $i, dechex($i * 2654435761 % 4294967296));
    preg_match_all('/(\d+) ([0-9a-f]+)/', $text, $found);
    $packed = gzcompress($text);
    return md5(implode(',', $found[2]) . strrev($text) . (gzuncompress($packed) === $text));
}

class Node
{
    public array $others = [];
    public function __construct(public int $number) {}
}

function objects(): string
{
    $sum = 0;
    for ($round = 0; $round < 30; $round++) {   // circles, which only the collector frees
        $nodes = [];
        for ($i = 0; $i < 2000; $i++)
            $nodes[] = new Node($i);
        foreach ($nodes as $i => $node)
            $node->others = [$nodes[($i + 1) % 2000], $nodes[$i * 31 % 2000]];
        $sum += $nodes[$round]->others[1]->others[0]->number;
    }
    gc_collect_cycles();
    $parts = (function () { for ($i = 0; $i < 50000; $i++) yield $i => "$i"; })();
    foreach ($parts as $number => $text)
        $sum += $number + strlen($text);
    return (string)$sum;
}

function documents(): string
{
    $document = new DOMDocument();
    $root = $document->appendChild($document->createElement('root'));
    for ($i = 0; $i < 5000; $i++) {
        $entry = $root->appendChild($document->createElement('entry', "text $i"));
        $entry->setAttribute('number', (string)($i % 97));
    }
    $again = new DOMDocument();
    $again->loadXML($document->saveXML());
    $found = (new DOMXPath($again))->query('//entry[@number="13"]');
    foreach (iterator_to_array($found) as $entry)
        $entry->parentNode->removeChild($entry);
    return $found->length . ' ' . md5(simplexml_import_dom($again)->asXML());
}

function database(): string
{
    $database = new PDO('sqlite::memory:');
    $database->exec('CREATE TABLE entry(id INTEGER PRIMARY KEY, name TEXT)');
    $insert = $database->prepare('INSERT INTO entry(name) VALUES (?)');
    $database->beginTransaction();
    for ($i = 0; $i < 20000; $i++)
        $insert->execute([str_repeat("name $i ", $i % 9)]);
    $database->commit();
    $database->sqliteCreateFunction('turned', 'strrev', 1);
    $rows = $database->query('SELECT id, turned(name) AS t FROM entry WHERE id % 7 = 3 ORDER BY t')->fetchAll(PDO::FETCH_ASSOC);
    return count($rows) . ' ' . md5(json_encode($rows));
}

function numbers(): string
{
    $n = gmp_fact(3000);
    return md5(gmp_strval($n) . gmp_strval(gmp_powm($n, 12345, gmp_nextprime(gmp_pow(2, 500)))));
}

function letters(): string
{
    $text = str_repeat("Grüße, мир, 世界; ", 5000);
    return md5(mb_strtoupper($text) . mb_convert_encoding($text, 'UTF-16', 'UTF-8')) . ' ' . mb_strlen($text);
}

function formats(): string
{
    $formatter = new NumberFormatter('de_DE', NumberFormatter::DECIMAL);
    $words = [];
    for ($i = 0; $i < 3000; $i++)
        $words[] = $formatter->format($i * 1234.5) . Normalizer::normalize("e\u{301}$i", Normalizer::FORM_C);
    (new Collator('de_DE'))->sort($words);
    return md5(implode(' ', $words));
}

$parts = ['arrays' => 'standard', 'strings' => 'zlib', 'objects' => 'standard', 'documents' => 'simplexml',
          'database' => 'pdo_sqlite', 'numbers' => 'gmp', 'letters' => 'mbstring', 'formats' => 'intl'];
foreach ($parts as $part => $extension)
    echo $part, ' ', extension_loaded($extension) ? $part() : "without $extension", "\n";
