-- What a person does in Neovim; `t` is of neovim.lua.
local t = ...
local out, scenarios = t.out, {}

-- A diagnostic of somebody else, the question at the end, a new file; then saved and undone.
function scenarios.flow()
  t.start()
  local spot = { lnum = 1, col = 4, end_lnum = 1, end_col = 16, message = 'add subtracts', source = 'check' }
  vim.diagnostic.set(vim.api.nvim_create_namespace('check'), 0, { spot })
  vim.api.nvim_win_set_cursor(0, { 2, 6 })
  t.picks = { 'Fix with FrogNano: add subtracts', 'Apply' }
  -- Neovim itself sends a server nothing but the diagnostics of that server.
  vim.lsp.buf.code_action({ context = { diagnostics = vim.lsp.diagnostic.from(vim.diagnostic.get(0)) } })
  t.wait('the question', function()
    return #t.asked == 2
  end)
  t.assert_untouched()
  t.wait_for_text('sum.py', 'a + b')
  t.wait('the message', function()
    return vim.api.nvim_exec2('messages', { output = true }).output:find('FrogNano: applied')
  end)
  out.encoding = t.client().offset_encoding
  out.after, out.disk = t.text('sum.py'), t.disk()
  vim.cmd('silent wall')
  out.written = t.disk()
  t.go_to('sum.py')
  vim.cmd('silent undo')
  out.undone = t.text('sum.py')
end

-- The answer Review: the same review as by the command.
function scenarios.question()
  t.start()
  t.picks = { 'Review' }
  vim.cmd('LspFrogFix add is wrong')
  t.wait('the hunks', function()
    return vim.api.nvim_buf_get_name(0):find('%.diff$') and #vim.fn.getqflist() > 0
  end)
  out.quickfix = t.quickfix()
  t.assert_untouched()
end

-- The bundled model and project: from words to tests that pass.
function scenarios.model()
  t.start(vim.env.FILE)
  t.propose(vim.env.ISSUE)
  out.review = t.review()
  t.go_to(vim.env.FILE)
  t.apply(nil, '^FrogNano: applied')
  t.assert_untouched()
  vim.cmd('silent wall')
end

-- Review, quickfix, one hunk by its number; one server for all of it.
function scenarios.hunks()
  t.start('long.py')
  t.propose()
  out.review = t.review()
  out.quickfix = t.quickfix()
  out.quickfix_is_open = vim.fn.getqflist({ winid = 0 }).winid > 0
  out.modifiable, out.filetype = vim.bo.modifiable, vim.bo.filetype
  t.wait('the server of the review', function()
    return vim.lsp.buf_is_attached(0, t.client().id)
  end)
  t.apply('#2', '^FrogNano: applied')
  out.after_second = t.text('long.py')
  t.wait('a shorter review', function()
    return #vim.fn.getqflist() == 2
  end)
  out.quickfix_after_second = t.quickfix()
  out.n_clients = #vim.lsp.get_clients()
  t.assert_untouched()
end

-- What is written beside a hunk of the review can be done there.
function scenarios.lenses()
  t.start('long.py')
  t.propose()
  t.review()
  local function titles()
    return vim.tbl_map(function(lens)
      return lens.command.title
    end, vim.lsp.codelens.get(0))
  end
  t.wait('the lenses', function()
    return #titles() > 0
  end)
  out.lenses = titles()
  vim.fn.search('^+FIRST')
  t.picks = { 'Apply' }
  vim.api.nvim_feedkeys(vim.keycode('<CR>'), 'xt', false)
  t.wait_for_text('long.py', 'FIRST')
  t.wait('the lenses of what is left', function()
    return vim.list_contains(titles(), 'Apply hunk 2') and not vim.list_contains(titles(), 'Apply hunk 1')
  end)
  out.after_first = t.text('long.py')
  vim.fn.search('^+LAST')
  t.picks = { 'Discard' }
  vim.api.nvim_feedkeys(vim.keycode('<CR>'), 'xt', false)
  t.wait_for_message('discarded')
  out.after_discard = t.text('long.py')
  t.assert_untouched()
end

-- Two folders: one server.
function scenarios.folders()
  t.start()
  local other = vim.fs.dirname(t.ws) .. '/other'
  vim.fn.mkdir(other .. '/.git', 'p')
  vim.fn.writefile({ 'x = 1' }, other .. '/x.py')
  vim.cmd.edit(other .. '/x.py')
  t.wait('the commands', function()
    return vim.api.nvim_buf_get_commands(0, {}).LspFrogFix
  end)
  out.n_clients = #vim.lsp.get_clients()
  vim.cmd('LspFrogFix x is wrong')
  t.wait('the end', function()
    return t.n_ended() == 1
  end)
  out.folder = t.rows()[1].folder
  vim.cmd('LspFrogDoctor')
  t.wait('the doctor', function()
    return vim.bo.filetype == 'checkhealth'
  end)
  out.doctor = vim.api.nvim_buf_get_lines(0, 0, -1, false)
end

-- Text that was never saved is what the run sees; typed while it runs, and in the moment in which the edit arrives.
function scenarios.stale()
  t.start()
  t.set('sum.py', 0, 0, { '# unsaved é 🐸' })
  vim.cmd('LspFrogFix add is wrong')
  t.wait_for_step('Bash')
  t.set('sum.py', 0, 0, { '# meanwhile' })
  t.wait('the end', function()
    return t.last('end')
  end)
  t.wait_until_kept()
  t.assert_untouched()
  local handler, n = vim.lsp.handlers['workspace/applyEdit'], 0
  vim.lsp.handlers['workspace/applyEdit'] = function(...)
    n = n + 1
    if n == 1 then
      t.set('sum.py', 0, 0, { '# typed' })
    end
    return handler(...)
  end
  t.apply(nil, '^FrogNano: applied')
  out.after, out.n_edits = t.text('sum.py'), n
  t.assert_untouched()
end

-- Typed on the same line: nothing is applied, nothing is lost; then dropped.
function scenarios.conflict()
  t.start()
  t.propose()
  t.set('sum.py', 1, 2, { '    return a * b' })
  out.message = t.apply()
  out.after = t.text('sum.py')
  out.state = t.rows()[1].state
  out.review = t.review()
  vim.cmd('LspFrogDiscard')
  t.wait_for_message('^FrogNano: discarded')
  out.state_after = t.rows()[1].state
  out.review_is_open = vim.fn.bufname('%.diff') ~= ''
  t.assert_untouched()
end

-- A new file and a deletion, which is asked for apart.
function scenarios.files()
  t.start()
  t.propose()
  vim.cmd('LspFrogReview')
  t.wait('the hunks', function()
    return #vim.fn.getqflist() > 0
  end)
  out.quickfix = t.quickfix()
  t.go_to('sum.py')
  out.message = t.apply('pkg/new.py gone.py', '^FrogNano: applied')
  t.wait('the deletion', function()
    return not t.disk()['gone.py']
  end)
  vim.cmd('silent wall')
  out.disk = t.disk()
  out.state = t.rows()[1].state
end

-- The file is renamed by somebody else before the edit: the proposal stays, nothing is written.
function scenarios.renamed()
  t.start()
  t.propose()
  assert(vim.uv.fs_rename(t.path('sum.py'), t.path('total.py')))
  vim.cmd('bwipeout!')
  t.start('total.py')
  t.before = t.disk()
  out.message = t.apply()
  out.state = t.rows()[1].state
  out.buffers = vim.tbl_map(function(bufnr)
    return vim.fs.basename(vim.api.nvim_buf_get_name(bufnr))
  end, vim.api.nvim_list_bufs())
  t.assert_untouched()
end

function scenarios.cancel()
  t.start()
  vim.cmd('LspFrogFix add is wrong')
  t.wait_for_step('Bash')
  out.status = vim.g.frog_status
  local begun = vim.uv.hrtime()
  vim.cmd('LspFrogCancel')
  t.wait('the end', function()
    return t.last('end')
  end)
  out.cancel_ms = (vim.uv.hrtime() - begun) / 1e6
  out.last, out.status_after = t.last('end'), vim.g.frog_status
  t.assert_untouched()
end

-- Two runs in one folder: the second waits; the list lets choose; both are there for the next server.
function scenarios.queue()
  t.start()
  vim.cmd('LspFrogFix first')
  t.wait_for_step('Bash')
  vim.cmd('LspFrogFix second')
  t.wait_for_message('queued')
  out.states = vim.tbl_map(function(row)
    return row.state
  end, t.rows())
  t.wait('both', function()
    return t.n_ended() == 2
  end)
  t.wait_until_kept()
  t.client():stop()
  t.wait('the end of the server', function()
    return not t.client()
  end)
  vim.cmd('bwipeout!')
  t.start()
  t.picks = { 'first' }
  vim.cmd('LspFrogRuns')
  t.wait('the list', function()
    return #t.asked == 1
  end)
  assert(t.review():find('proposes: first'), 'the review of the chosen run')
  t.go_to('sum.py')
  out.message = t.apply(nil, '^FrogNano: applied')
  out.after = t.text('sum.py')
  out.rows = t.rows()
  t.assert_untouched()
end

-- Selected characters, in units of the server; and every step of the run as a document.
function scenarios.selection()
  t.start()
  t.set('sum.py', 0, 0, { 'é = "🐸 wrong"' })
  vim.cmd('normal! gg0f🐸vfg')
  vim.api.nvim_feedkeys(vim.keycode(':LspFrogFix<CR>'), 'xt', false)
  t.wait('the end', function()
    return t.last('end')
  end)
  t.wait_until_kept()
  vim.cmd('LspFrogLog')
  t.wait('the log', function()
    return vim.api.nvim_buf_get_name(0):find('trajectories')
  end)
  out.log = table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\n')
  out.n_clients = #vim.lsp.get_clients()
end

-- A question that comes while somebody types waits until that is over.
function scenarios.typing()
  t.start()
  vim.cmd('LspFrogFix add is wrong')
  vim.api.nvim_input('O# typed')
  t.wait_in_loop('a proposal', function()
    return (t.last('end') or ''):find('^a proposal')
  end)
  t.wait_until_kept()
  out.mode, out.n_asked = vim.api.nvim_get_mode().mode, #t.asked
  t.picks = { 'Apply' }
  vim.api.nvim_input('<Esc>')
  t.wait_in_loop('the edit', function()
    return t.text('sum.py'):find('a + b', 1, true)
  end)
  out.after = t.text('sum.py')
end

return scenarios
