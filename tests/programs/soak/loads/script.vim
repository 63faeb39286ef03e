" What vim does on both allocators: text is made, changed by expressions, undone, sorted and folded.
set nocompatible undolevels=1000 nomore
call setline(1, map(range(1, 6000), {i, n -> printf('line %d %s', n, repeat(nr2char(97 + n * 7 % 26), n % 50))}))
%s/\v(\d+) (\a)/\2-\1 /
%s/[aeiou]\+/\=toupper(submatch(0)) . len(submatch(0))/g
g/7 /normal! A tail
v/tail/normal! ddp
%sort n
undo
undo
redo
let g:words = {}
for line in getline(1, '$')
  for word in split(line, '\W\+')
    let g:words[word] = get(words, word, 0) + 1
  endfor
endfor
call append('$', map(sort(keys(g:words))[0:500], {i, word -> word . '=' . g:words[word]}))
syntax on
set filetype=c foldmethod=indent
normal! ggVGgU
for i in range(200)
  new
  call setline(1, repeat(['buffer ' . i], i))
  execute 'normal! ggyGP'
  bwipeout!
endfor
let text = join(getline(1, '$'), "\n")
call writefile([sha256(text), json_encode(json_decode(json_encode(g:words)))[0:2000]], 'digest')
write! result
qall!
