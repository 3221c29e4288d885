" vim -N -u vim_ale.vim -i NONE -e -s        (env: SCENARIO, SNIPPET, FROG_OPTIONS, WS, OUT)
" Drives the server in a real Vim with ALE through the snippet of `frog-lsp setup vim`; writes what happened to OUT.
set nocompatible hidden noswapfile nomore shortmess+=A encoding=utf-8
let g:ale_linters = {'python': ['frog']}
packadd! ale
filetype plugin on
execute 'source ' . fnameescape($SNIPPET)
let g:frog_options = extend(json_decode($FROG_OPTIONS), {'logLevel': 'info'})
" Vim loads plug-ins after its vimrc; this file is one, and goes on.
runtime plugin/ale.vim
let g:out = {'steps': [], 'asked': []}

function! Note(id, message) abort
  if get(a:message, 'method', '') is# 'window/logMessage'
    call add(g:out.steps, a:message.params.message)
  endif
endfunction
function! Wait(what, IsTrue, ...) abort
  let l:end = reltimefloat(reltime()) + get(a:, 1, 60)
  while !a:IsTrue()
    if reltimefloat(reltime()) > l:end
      throw 'waited in vain for ' . a:what . ', last: ' . g:frog_status
    endif
    sleep 20m
  endwhile
endfunction
function! Said(pattern) abort
  call Wait(a:pattern, {-> g:frog_status =~# a:pattern})
endfunction
function! Text(name) abort
  return join(getbufline(bufnr($WS . '/' . a:name), 1, '$'), "\n") . "\n"
endfunction
function! Start() abort
  execute 'edit ' . fnameescape($WS . '/sum.py')
  setlocal filetype=python
  call ale#Queue(0, 'lint_file')
  call Wait('the server', {-> !empty(filter(values(ale#lsp#GetConnections()), 'v:val.initialized'))})
  call ale#lsp#RegisterCallback(keys(ale#lsp#GetConnections())[0], function('Note'))
endfunction
function! Apply() abort
  let &undolevels = &undolevels " what was typed before is undone apart
  let g:frog_status = ''
  FrogApply
  call Said('^FrogNano: \(applied\|not applied\|in conflict\|already\)')
  let g:out.message = g:frog_status
endfunction

" Text that was typed and neither saved nor sent; an edit, a new file, a deletion; typed elsewhere before the edit.
function! Scenario_flow() abort
  call Start()
  call setline(1, ['# typed é 🐸'] + getline(1, '$'))
  FrogFix add is wrong
  call Said('proposes changes')
  FrogReview
  call Wait('the review', {-> bufname('') =~# '\.diff$'})
  let g:out.review = join(getline(1, '$'), "\n")
  close
  call append(0, '# meanwhile')
  let l:began = reltime()
  call Apply()
  let g:out.apply_s = reltimefloat(reltime(l:began))
  let g:out.after = Text('sum.py')
  let g:out.modified = getbufvar('sum.py', '&modified')
  silent undo
  let g:out.undone = Text('sum.py')
endfunction

" ALE's own code action.
function! Scenario_action() abort
  call Start()
  call cursor(2, 5)
  runtime autoload/ale/util.vim
  function! ale#util#Input(message, value, ...) abort
    call add(g:out.asked, a:message)
    return '1'
  endfunction
  ALECodeAction
  call Wait('the question', {-> !empty(g:out.asked)})
  " ALE shows nothing of a run: ask.
  call Wait('the end', {-> s:is_over()})
  call Apply()
  let g:out.after = Text('sum.py')
endfunction
function! s:is_over() abort
  FrogRuns
  sleep 200m
  return g:frog_status =~# '^proposed: '
endfunction

" Typed on the same line, and a run that is stopped.
function! Scenario_conflict() abort
  call Start()
  FrogFix add is wrong
  call Said('proposes changes')
  call setline(2, '    return a * b')
  call Apply()
  let g:out.after = Text('sum.py')
endfunction

function! Scenario_cancel() abort
  call Start()
  FrogFix add is wrong
  call Said('Bash: sleep')
  let l:began = reltime()
  FrogCancel
  " the command's answer, or the end of the progress where that came right after it
  call Said('^FrogNano: \(cancelled 1\|add is wrong: cancelled\)$')
  let g:out.cancel_s = reltimefloat(reltime(l:began))
endfunction

try
  execute 'call Scenario_' . $SCENARIO . '()'
catch
  let g:out.error = v:exception . ' at ' . v:throwpoint . "\n" . execute('messages')
endtry
let g:out.disk = join(readfile($WS . '/sum.py'), "\n") . "\n"
call writefile([json_encode(g:out)], $OUT)
call ale#lsp#StopAll()
qa!
