-- Neovim 0.11 or newer. Save as ~/.config/nvim/lsp/frog.lua and put `vim.lsp.enable('frog')` into your init.lua.
--
--   :LspFrogFix [what is wrong]        the words, else what is reported on the line or in the selection, else it asks
--   :LspFrogReview                     the diff of the proposal; its hunks go to the quickfix list
--   :LspFrogApply [file ...] [#2 ...]  apply the proposal, or these files or hunks of it
--   :LspFrogDiscard [file ...] [#2 ...]
--   :LspFrogCancel                     stop all runs
--   :LspFrogRuns                       all runs with their state; the chosen one is what the commands are about
--   :LspFrogLog                        every step of the run
--   :LspFrogDoctor                     is a run possible here, and what is missing
--
-- In the review <CR> on a hunk does what is written beside it. vim.g.frog_status holds the step of the run:
--   vim.o.statusline = '%<%f %h%m%r %=%{get(g:, "frog_status", "")} %l,%c'
-- vim.g.frog_progress = false keeps the steps out of the message area. Settings, for example:
--   vim.lsp.config('frog', { init_options = { tests = { command = 'make check' }, limits = { maxSteps = 40 } } })
-- Run in Neovim 0.11.4.

local chosen = nil -- the id of the run that the commands are about
local HAS_PROPOSAL = { proposed = true, applied = true, ['partly-applied'] = true, conflict = true }

local function show(text, level)
  vim.notify(text, level or vim.log.levels.INFO, { title = 'frog-lsp' })
end

local function run(client, command, argument, on_result)
  local params = { command = command, arguments = { argument or vim.empty_dict() } }
  client:request('workspace/executeCommand', params, function(err, result)
    if err then
      show(err.message, vim.log.levels.ERROR)
    elseif on_result then
      on_result(result)
    end
  end)
end

-- The chosen run, else the last one with a proposal.
local function with_run(client, action)
  run(client, 'frog.runs', nil, function(rows)
    local found = nil
    for _, row in ipairs(rows) do
      if row.runId == chosen then
        return action(row)
      end
      found = HAS_PROPOSAL[row.state] and row or found
    end
    if not found then
      return show('there is no proposal', vim.log.levels.WARN)
    end
    action(found)
  end)
end

-- Review ----------------------------------------------------------------------------------------------------

local function unquoted(name)
  local inner = name:match('^"(.*)"$')
  if not inner then
    return name
  end
  local plain = { a = '\a', b = '\b', t = '\t', n = '\n', v = '\v', f = '\f', r = '\r' }
  inner = inner:gsub('\\(%d%d%d)', function(octal)
    return string.char(tonumber(octal, 8))
  end)
  return (inner:gsub('\\(.)', plain))
end

-- Every hunk at its first change in the file as it is now; what has no such place at its line of the review.
local function quickfix_items(path, root)
  local items, at = {}, 0
  local section, name, hunk, line -- of the diff: a file, its name before, a hunk without a change yet, a line of the file
  for text in io.lines(path) do
    at = at + 1
    local first, number = text:match('^@@ %-(%d+).* @@ hunk (%d+)$')
    if text:match('^diff %-%-git ') then
      section, name, hunk = { filename = path, lnum = at, text = text:sub(12) }, nil, nil
      items[#items + 1] = section
    elseif number then
      if items[#items] == section then -- a file with hunks is its hunks
        table.remove(items)
      end
      section = nil
      local file = name and vim.fs.joinpath(root, name)
      local is_there = file and vim.uv.fs_stat(file)
      hunk = { filename = is_there and file or path, lnum = at, text = 'hunk ' .. number }
      line = is_there and tonumber(first)
      items[#items + 1] = hunk
    elseif section and text:match('^%-%-%- .') then
      name = unquoted((text:sub(5):gsub('\t$', ''))):match('^a/(.*)')
    elseif hunk and text:match('^[-+]') then
      hunk.lnum, hunk.text = math.max(1, line or hunk.lnum), hunk.text .. ': ' .. text
      hunk = nil
    elseif hunk and line then
      line = line + 1
    end
  end
  return items
end

local function show_lenses(bufnr)
  if vim.lsp.codelens.enable then -- 0.12
    vim.lsp.codelens.enable(true, { bufnr = bufnr })
  else
    vim.lsp.codelens.refresh({ bufnr = bufnr })
  end
end

-- What can be done with the open review of a run: its hunks in the quickfix list, and what stands beside them.
local function show_parts(bufnr, row)
  local items = quickfix_items(vim.api.nvim_buf_get_name(bufnr), vim.uri_to_fname(row.folder))
  vim.fn.setqflist({}, ' ', { title = 'FrogNano: ' .. row.title, items = items })
  if #items > 0 then
    local window = vim.api.nvim_get_current_win()
    vim.cmd('botright copen ' .. math.min(#items, 8))
    vim.api.nvim_set_current_win(window)
  end
  show_lenses(bufnr)
end

local function review(client, row)
  run(client, 'frog.review', { runId = row.runId }, function(result)
    if not result.shown then
      vim.cmd.split(vim.fn.fnameescape(result.path))
    end
    local bufnr = vim.fn.bufnr(vim.fn.fnameescape(result.path))
    vim.cmd.checktime(bufnr)
    show_parts(bufnr, row)
  end)
end

-- After a part of a proposal is gone its review says less: shown again where it is shown.
local function review_again(client, run_id, state)
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_get_name(bufnr):match('/reviews/' .. vim.pesc(run_id) .. '%.diff$') then
      if state == 'discarded' or state == 'applied' then
        vim.fn.setqflist({}, ' ', { title = 'FrogNano', items = {} })
        vim.cmd.cclose()
        return vim.api.nvim_buf_delete(bufnr, { force = true })
      end
      local window = vim.api.nvim_get_current_win()
      return with_run(client, function(row)
        if row.runId == run_id and #vim.fn.win_findbuf(bufnr) > 0 then
          review(client, row)
          vim.api.nvim_set_current_win(window)
        end
      end)
    end
  end
end

-- The review was opened, by the command or by an answer to the question at the end of a run.
local function on_review(client, bufnr, run_id)
  vim.bo[bufnr].modifiable, vim.bo[bufnr].autoread = false, true
  vim.keymap.set('n', '<CR>', function()
    local line = vim.fn.search('^@@ ', 'bcnW')
    if line > 0 then
      vim.api.nvim_win_set_cursor(0, { line, 0 })
    end
    vim.lsp.codelens.run()
  end, { buffer = bufnr, desc = 'apply or discard this hunk' })
  chosen = run_id
  with_run(client, function(row)
    if row.runId == run_id then
      show_parts(bufnr, row)
    end
  end)
end

-- What to do with a proposal --------------------------------------------------------------------------------

local function apply(client, argument)
  run(client, 'frog.apply', argument, function(result)
    show(result.message)
    review_again(client, result.runId, result.state)
  end)
end

local function discard(client, argument)
  run(client, 'frog.discard', argument, function(result)
    show(result.state == 'discarded' and 'FrogNano: discarded' or 'FrogNano: discarded in part')
    if result.state == 'discarded' and chosen == result.runId then
      chosen = nil
    end
    review_again(client, result.runId, result.state)
  end)
end

-- `#2` is a hunk, all else a file (write ./#2 for a file of that name).
local function parts_of(row, words)
  local files, hunks = {}, {}
  for _, word in ipairs(words) do
    local number = word:match('^#(%d+)$')
    table.insert(number and hunks or files, number and tonumber(number) or word)
  end
  return { runId = row.runId, files = files[1] and files or nil, hunks = hunks[1] and hunks or nil }
end

-- Start -----------------------------------------------------------------------------------------------------

local function start(client, argument)
  run(client, 'frog.fix', argument, function(result)
    chosen = result.runId
    if result.place > 0 then
      show(('FrogNano: queued, place %d'):format(result.place))
    end
  end)
end

-- A position of the server from a line (from 0) and bytes into it.
local function position(client, bufnr, line, column)
  local text = vim.api.nvim_buf_get_lines(bufnr, line, line + 1, false)[1] or ''
  local character = vim.str_utfindex(text, client.offset_encoding, math.min(column, #text), false)
  return { line = line, character = character }
end

-- The selected characters where the range is what is selected, else whole lines.
local function selection(client, bufnr, options)
  local first, last = vim.fn.getpos("'<"), vim.fn.getpos("'>")
  local mode = vim.fn.visualmode()
  if options.range == 2 and first[2] == options.line1 and last[2] == options.line2 and mode == 'v' then
    local region = vim.fn.getregionpos(first, last, { type = mode })
    local from, to = region[1][1], region[#region][2]
    local text = vim.api.nvim_buf_get_lines(bufnr, to[2] - 1, to[2], false)[1]
    local past = to[3] > 0 and to[3] + vim.str_utf_end(text .. ' ', to[3]) or 0
    return {
      start = position(client, bufnr, from[2] - 1, math.max(0, from[3] - 1)),
      ['end'] = position(client, bufnr, to[2] - 1, past),
    }
  end
  local until_line = options.range > 0 and options.line2 or options.line2 - 1
  return {
    start = { line = options.line1 - 1, character = 0 },
    ['end'] = { line = until_line, character = 0 },
  }
end

local function fix(client, bufnr, options)
  local found = vim.tbl_filter(function(diagnostic)
    return diagnostic.lnum < options.line2 and (diagnostic.end_lnum or diagnostic.lnum) >= options.line1 - 1
  end, vim.diagnostic.get(bufnr))
  local function go(words)
    start(client, {
      uri = vim.uri_from_bufnr(bufnr),
      range = selection(client, bufnr, options),
      issue = words,
      diagnostics = vim.lsp.diagnostic.from(found),
    })
  end
  if options.args ~= '' or #found > 0 or options.range > 0 then
    return go(options.args ~= '' and options.args or nil)
  end
  vim.ui.input({ prompt = 'What is wrong? (empty: what this line says) ' }, function(words)
    if words then
      go(words ~= '' and words or nil)
    end
  end)
end

local function choose_run(client)
  run(client, 'frog.runs', nil, function(rows)
    if #rows == 0 then
      return show('there are no runs')
    end
    vim.ui.select(vim.fn.reverse(rows), {
      prompt = 'Runs of FrogNano:',
      format_item = function(row)
        local files = #row.files > 0 and (' (%s)'):format(table.concat(row.files, ', ')) or ''
        return ('%s%s: %s%s'):format(row.runId == chosen and '* ' or '', row.state, row.title, files)
      end,
    }, function(row)
      chosen = row and row.runId or chosen
    end)
  end)
end

-- Doctor ----------------------------------------------------------------------------------------------------

local MARKS = { ok = '✅ OK', warning = '⚠️ WARNING', error = '❌ ERROR' }

local function doctor_lines(result)
  local workspace, parts = {}, {}
  for _, line in ipairs(result.lines) do
    local name, status, text = line:match('^([^:]+): (%l+): (.*)$')
    if MARKS[status] then
      parts[#parts + 1] = ('- %s %s: %s'):format(MARKS[status], name, text)
    elseif line:match('^folder') then
      local is_fine = line:match(': runs are allowed$')
      workspace[#workspace + 1] = ('- %s %s'):format(is_fine and MARKS.ok or MARKS.error, line)
    else
      workspace[#workspace + 1] = ('- %s %s'):format(MARKS.warning, line)
    end
  end
  local verdict = result.ok and 'a run is possible here' or 'no run is possible before what says ERROR is repaired'
  local lines = { ('='):rep(78), 'frog: ' .. verdict, '', 'Workspace ~' }
  vim.list_extend(lines, workspace)
  vim.list_extend(lines, { '', 'What a run needs ~' })
  return vim.list_extend(lines, parts)
end

local function doctor(client)
  run(client, 'frog.doctor', nil, function(result)
    local old = vim.fn.bufnr('frog://doctor')
    if old > 0 then
      vim.api.nvim_buf_delete(old, { force = true })
    end
    vim.cmd('tab new frog://doctor')
    vim.api.nvim_buf_set_lines(0, 0, -1, false, doctor_lines(result))
    vim.bo.buftype, vim.bo.bufhidden, vim.bo.swapfile = 'nofile', 'wipe', false
    vim.bo.filetype = 'checkhealth'
    vim.bo.modifiable, vim.bo.modified = false, false
    vim.keymap.set('n', 'q', '<Cmd>close<CR>', { buffer = true })
  end)
end

-- The client ------------------------------------------------------------------------------------------------

local function review_of(path)
  return path:match('/frog%-lsp/reviews/([^/]+)%.diff$')
end

local function is_ours(path)
  return review_of(path) or path:match('/frog%-lsp/trajectories/[^/]+$')
end

local function add_commands(client, bufnr)
  local function command(name, action, options)
    vim.api.nvim_buf_create_user_command(bufnr, 'LspFrog' .. name, action, options or {})
  end
  local function on_run(action)
    return function(options)
      with_run(client, function(row)
        action(client, row, options)
      end)
    end
  end
  local function part_command(name, action)
    command(name, on_run(function(_, row, options)
      action(client, parts_of(row, options.fargs))
    end), { nargs = '*' })
  end
  command('Fix', function(options)
    fix(client, bufnr, options)
  end, { nargs = '*', range = true })
  command('Cancel', function()
    run(client, 'frog.cancel', nil, function(result)
      show(('FrogNano: cancelled %d'):format(#result.cancelled))
    end)
  end)
  command('Review', on_run(review))
  part_command('Apply', apply)
  part_command('Discard', discard)
  command('Runs', function()
    choose_run(client)
  end)
  command('Log', on_run(function(_, row)
    run(client, 'frog.log', { runId = row.runId })
  end))
  command('Doctor', function()
    doctor(client)
  end)
  local run_id = review_of(vim.api.nvim_buf_get_name(bufnr))
  if run_id then
    on_review(client, bufnr, run_id)
  end
end

local function show_progress(client)
  local titles = {}
  vim.api.nvim_create_autocmd('LspProgress', {
    group = vim.api.nvim_create_augroup('frog_progress', { clear = true }),
    callback = function(event)
      if event.data.client_id ~= client.id then
        return
      end
      local token, value = event.data.params.token, event.data.params.value
      titles[token] = value.title or titles[token]
      local title = value.kind == 'report' and 'FrogNano' or titles[token] or 'FrogNano'
      local text = ('%s: %s'):format(title, value.message or '')
      vim.g.frog_status = value.kind ~= 'end' and text or ''
      vim.cmd.redrawstatus()
      if vim.g.frog_progress ~= false then
        -- no wider than the message area: a longer one would ask for <Enter>
        local fitting = vim.fn.printf('%.' .. math.max(1, vim.v.echospace) .. 'S', text)
        vim.api.nvim_echo({ { fitting } }, value.kind == 'end', {})
      end
    end,
  })
end

local function add_folders(client, folders)
  if #folders > 0 then
    client:notify('workspace/didChangeWorkspaceFolders', { event = { added = folders, removed = {} } })
  end
end

-- One server for all folders, which share the model.
local function reuse_client(client, config)
  if client.name ~= config.name or client:is_stopped() then
    return false
  end
  local root, folders = config.root_dir, client.workspace_folders or {}
  for _, folder in ipairs(folders) do
    root = folder.name ~= root and root or nil
  end
  if root then
    local folder = { uri = vim.uri_from_fname(root), name = root }
    client.workspace_folders = vim.list_extend(folders, { folder })
    if client.initialized then
      add_folders(client, { folder })
    end
  end
  return true
end

local function find_root(bufnr, on_dir)
  local path = vim.api.nvim_buf_get_name(bufnr)
  if not is_ours(path) then
    return on_dir(vim.fs.root(bufnr, vim.lsp.config.frog.root_markers))
  end
  local client = vim.lsp.get_clients({ name = 'frog' })[1] -- the one that wrote it; none is started for it
  if client and client.root_dir then
    on_dir(client.root_dir)
  end
end

-- A question would swallow what is being typed: it waits for the end of that.
local function ask_when_idle(err, params, context)
  local thread = coroutine.running()
  if thread and vim.api.nvim_get_mode().mode:match('^[iR]') then
    local resume = vim.schedule_wrap(function()
      coroutine.resume(thread)
    end)
    vim.api.nvim_create_autocmd('ModeChanged', { pattern = '[iR]*:n*', once = true, callback = resume })
    coroutine.yield()
  end
  return vim.lsp.handlers['window/showMessageRequest'](err, params, context)
end

local function on_command(action)
  return function(command, context)
    action(assert(vim.lsp.get_client_by_id(context.client_id)), (command.arguments or {})[1])
  end
end

return {
  cmd = { 'frog-lsp' },
  root_markers = { '.git', 'pyproject.toml', 'setup.py', 'package.json', 'Cargo.toml', 'go.mod' },
  root_dir = find_root,
  reuse_client = reuse_client,
  settings = { frog = vim.empty_dict() },
  handlers = { ['window/showMessageRequest'] = ask_when_idle },
  -- of code actions and of the lenses of the review
  commands = {
    ['frog.fix'] = on_command(start),
    ['frog.apply'] = on_command(apply),
    ['frog.discard'] = on_command(discard),
  },
  on_init = function(client)
    show_progress(client)
    add_folders(client, vim.list_slice(client.workspace_folders or {}, 2))
  end,
  on_attach = add_commands,
}
