" Vim 9 with ALE 3.3 or newer. Add to your vimrc, below what loads ALE (`packadd! ale`). With g:ale_linters set,
" add 'frog' there.  :FrogFix WORDS (without words: what is on this line), :FrogReview, :FrogApply, :FrogDiscard,
" :FrogCancel, :FrogRuns; or :ALECodeAction.  g:frog_status holds the last step, for the status line.
" Run in Vim 9.0 with ALE 3.3.  ALE makes, renames and deletes no files: those come as a patch.

let s:frog = 'frog-lsp'
let g:frog_options = get(g:, 'frog_options', {})
let g:frog_status = ''

" ALE never shows the question at the end of a run, and applies edits though it says that it does not.
function! FrogOptions(...) abort
  return extend({'review': {'ask': v:false}, 'client': {'appliesEdits': v:true}}, g:frog_options)
endfunction

function! FrogRoot(buffer) abort
  let l:git = ale#path#FindNearestDirectory(a:buffer, '.git')
  return empty(l:git) ? expand('#' . a:buffer . ':p:h') : fnamemodify(l:git, ':h:h')
endfunction

for s:type in ['python', 'javascript', 'typescript', 'c', 'cpp', 'go', 'rust', 'ruby', 'sh', 'java']
  call ale#linter#Define(s:type, {
  \ 'name': 'frog', 'lsp': 'stdio', 'executable': s:frog, 'command': '%e', 'language': s:type,
  \ 'project_root': function('FrogRoot'), 'initialization_options': function('FrogOptions'),
  \})
endfor

" ALE tells a server of a change only after a pause, and of its own edits not at all.
function! s:Tell(id) abort
  for l:buffer in getbufinfo({'bufloaded': 1})
    if has_key(get(ale#lsp#GetConnections(), a:id, {'open_documents': {}}).open_documents, l:buffer.bufnr)
      call ale#lsp#NotifyForChanges(a:id, l:buffer.bufnr)
    endif
  endfor
endfunction

function! FrogHear(id, message) abort
  let l:method = get(a:message, 'method', '')
  if l:method is# 'workspace/applyEdit'
    call timer_start(0, {-> s:Tell(a:id)})
  elseif l:method is# 'window/logMessage' || l:method is# 'window/showMessage'
    let g:frog_status = a:message.params.message
    if g:frog_status =~# '^FrogNano \|^FrogNano: applied'
      echomsg g:frog_status
    endif
  endif
endfunction

function! s:Run(command, argument, Then) abort
  for l:id in keys(ale#lsp#GetConnections())
    if stridx(l:id, s:frog . ':') == 0
      call ale#lsp#RegisterCallback(l:id, function('ale#codefix#HandleLSPResponse'))
      call ale#lsp#RegisterCallback(l:id, function('FrogHear'))
      call s:Tell(l:id)
    endif
  endfor
  call ale#lsp_linter#SendRequest(bufnr(''), 'frog',
  \ ale#lsp#message#ExecuteCommand(a:command, [a:argument]), function('s:Answer', [a:Then]))
endfunction

function! s:Answer(Then, response) abort
  if has_key(a:response, 'error')
    echohl WarningMsg | echomsg a:response.error.message | echohl None
  else
    call a:Then(a:response.result)
  endif
endfunction

function! s:RunOnLast(command, Then) abort
  call s:Run('frog.runs', {}, function('s:OnRuns', [a:command, a:Then]))
endfunction

function! s:OnRuns(command, Then, rows) abort
  for l:row in reverse(copy(a:rows))
    if index(['proposed', 'partly-applied', 'conflict'], l:row.state) >= 0
      return s:Run(a:command, {'runId': l:row.runId}, a:Then)
    endif
  endfor
  echomsg 'FrogNano: there is no proposal'
endfunction

function! s:Say(text) abort
  let g:frog_status = a:text
  echomsg a:text
endfunction

function! s:Fix(words) abort
  let l:line = line('.') - 1
  let l:argument = {'uri': ale#util#ToURI(expand('%:p')), 'range': {
  \ 'start': {'line': l:line, 'character': 0}, 'end': {'line': l:line + 1, 'character': 0}}}
  if !empty(a:words)
    let l:argument.issue = a:words
  endif
  call s:Run('frog.fix', l:argument, {result -> s:Say('FrogNano runs: ' . result.runId)})
endfunction

command! -nargs=* FrogFix call s:Fix(<q-args>)
command! FrogReview call s:RunOnLast('frog.review', {result -> execute('sview ' . fnameescape(result.path))})
command! FrogApply call s:RunOnLast('frog.apply', {result -> s:Say(result.message)})
command! FrogDiscard call s:RunOnLast('frog.discard', {result -> s:Say('FrogNano: discarded')})
command! FrogCancel call s:Run('frog.cancel', {}, {result -> s:Say('FrogNano: cancelled ' . len(result.cancelled))})
command! FrogRuns call s:Run('frog.runs', {}, {rows -> s:Say(join(map(rows, 'v:val.state . ": " . v:val.title'), '; '))})
