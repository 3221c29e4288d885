-- Neovim 0.11 or newer. Save as ~/.config/nvim/lsp/frog.lua and put `vim.lsp.enable('frog')` into your init.lua.
--
--   :LspFrogFix [what is wrong]   fix an issue: the words, else the diagnostics of the line or range, else it asks
--   :LspFrogCancel                stop the run
--   :LspFrogReview                the diff of the last proposal; its hunks go to the quickfix list
--   :LspFrogApply [file ...]      apply the last proposal, or these files of it
--   :LspFrogDiscard               drop the last proposal
--   :LspFrogDoctor                is a run possible here, and what is missing
--
-- vim.g.frog_progress = false keeps the steps of a run out of the message area.

local last_run = nil

local function show(text, level)
  vim.notify(text, level or vim.log.levels.INFO, { title = 'frog-lsp' })
end

local function run(client, bufnr, command, argument, on_result)
  local params = { title = command, command = command, arguments = { argument or vim.empty_dict() } }
  client:exec_cmd(params, { bufnr = bufnr }, function(err, result)
    if err then
      show(err.message, vim.log.levels.ERROR)
    elseif on_result then
      on_result(result)
    end
  end)
end

-- The run that was started here last, else the last one with a proposal.
local function with_run(client, bufnr, action)
  if last_run then
    return action(last_run)
  end
  run(client, bufnr, 'frog.runs', nil, function(rows)
    for i = #rows, 1, -1 do
      if vim.tbl_contains({ 'proposed', 'partly-applied', 'conflict' }, rows[i].state) then
        return action(rows[i].runId)
      end
    end
    show('there is no proposal')
  end)
end

local function hunks_to_quickfix(path, root)
  local items, file = {}, nil
  for text in io.lines(path) do
    file = text:match('^%+%+%+ b/(.-)\t?$') or (text:match('^diff ') and nil) or file
    local line, number = text:match('^@@ %-%d+,?%d* %+(%d+),?%d* @@ hunk (%d+)')
    if line then
      local name = file and vim.fs.joinpath(root, file) or path
      items[#items + 1] = { filename = name, lnum = math.max(1, tonumber(line)), text = 'hunk ' .. number }
    end
  end
  vim.fn.setqflist({}, ' ', { title = 'FrogNano', items = items })
end

local function fix(client, bufnr, options)
  local first, last = options.line1 - 1, options.line2 - 1
  local uri = vim.uri_from_bufnr(bufnr)
  local range = { start = { line = first, character = 0 }, ['end'] = { line = last, character = 0 } }
  if options.range > 0 then
    range['end'] = { line = last + 1, character = 0 }
  end
  local found = vim.tbl_filter(function(d)
    return d.lnum >= first and d.lnum <= last
  end, vim.diagnostic.get(bufnr))
  local function start(words)
    local argument = { uri = uri, range = range, issue = words, diagnostics = vim.lsp.diagnostic.from(found) }
    run(client, bufnr, 'frog.fix', argument, function(result)
      last_run = result.runId
    end)
  end
  if options.args ~= '' then
    start(options.args)
  elseif #found > 0 or options.range > 0 then
    start(nil)
  else
    vim.ui.input({ prompt = 'What is wrong? ' }, function(words)
      if words and words ~= '' then
        start(words)
      end
    end)
  end
end

local function add_commands(client, bufnr)
  local function command(name, action, options)
    vim.api.nvim_buf_create_user_command(bufnr, name, action, options or {})
  end
  command('LspFrogFix', function(options)
    fix(client, bufnr, options)
  end, { nargs = '*', range = true })
  command('LspFrogCancel', function()
    run(client, bufnr, 'frog.cancel')
  end)
  command('LspFrogReview', function()
    with_run(client, bufnr, function(id)
      run(client, bufnr, 'frog.review', { runId = id }, function(result)
        hunks_to_quickfix(result.path, client.root_dir or vim.fn.getcwd())
      end)
    end)
  end)
  command('LspFrogApply', function(options)
    with_run(client, bufnr, function(id)
      local files = #options.fargs > 0 and options.fargs or nil
      run(client, bufnr, 'frog.apply', { runId = id, files = files }, function(result)
        show(result.message)
      end)
    end)
  end, { nargs = '*' })
  command('LspFrogDiscard', function()
    with_run(client, bufnr, function(id)
      run(client, bufnr, 'frog.discard', { runId = id }, function()
        last_run = nil
        show('discarded')
      end)
    end)
  end)
  command('LspFrogDoctor', function()
    run(client, bufnr, 'frog.doctor', nil, function(result)
      show(table.concat(result.lines, '\n'))
    end)
  end)
end

local function show_progress(client)
  vim.api.nvim_create_autocmd('LspProgress', {
    group = vim.api.nvim_create_augroup('frog_progress', { clear = true }),
    callback = function(event)
      if event.data.client_id == client.id and vim.g.frog_progress ~= false then
        local value = event.data.params.value
        local title = value.title and (value.title .. ': ') or 'FrogNano: '
        vim.api.nvim_echo({ { (title .. (value.message or '')):sub(1, vim.o.columns - 1) } }, false, {})
      end
    end,
  })
end

return {
  cmd = { 'frog-lsp' },
  root_markers = { '.git', 'pyproject.toml', 'setup.py', 'package.json', 'Cargo.toml', 'go.mod' },
  settings = { frog = vim.empty_dict() },
  on_init = show_progress,
  on_attach = add_commands,
}
