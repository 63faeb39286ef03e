<?php
// A page of a shop: articles drawn and sorted, grouped, searched by an expression, put through a template, and as JSON.
mt_srand((int) ($_GET["round"] ?? 1));
$articles = [];
for ($i = 0; $i < 600; $i++) {
    $articles[] = ["id" => $i, "name" => "article-" . mt_rand(0, 400), "price" => mt_rand(100, 99999), "words" => explode(" ",
        str_repeat("w" . mt_rand(0, 50) . " ", mt_rand(1, 12)))];
}
usort($articles, fn ($a, $b) => $a["price"] <=> $b["price"] ?: $a["id"] <=> $b["id"]);
$groups = [];
foreach ($articles as $each) {
    $groups[$each["name"]][] = $each["price"];
}
ksort($groups);
$rows = "";
foreach ($groups as $name => $prices) {
    $rows .= sprintf("<tr><td>%s</td><td>%d</td><td>%.2f</td></tr>\n", htmlspecialchars($name), count($prices), array_sum($prices) / 100);
}
$found = array_filter($articles, fn ($each) => preg_match('/^article-(\d)\1/', $each["name"]));
$data = json_decode(json_encode($articles), true);
echo "<html><body><table>\n", $rows, "</table><p>", count($found), " found, ", count($data), " in all, ", md5($rows), "</p></body></html>\n";
