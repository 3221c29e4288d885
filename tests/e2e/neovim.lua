-- nvim --headless --clean -i NONE -n -l neovim.lua SCENARIO     (env: FROG_LUA, FROG_CMD, FROG_OPTIONS, WS, OUT)
-- Drives the server in a real Neovim; writes what happened to OUT as JSON.
if vim.env.DEBUG then vim.lsp.set_log_level('debug') end
local ws, out = vim.env.WS, {}
local events, asked, messages, picks = {}, {}, {}, {}

vim.ui.select = function(items, opts, callback)
  local titles = {}
  for _, item in ipairs(items) do
    titles[#titles + 1] = opts.format_item and opts.format_item(item) or tostring(item)
  end
  asked[#asked + 1] = { prompt = opts.prompt, items = titles }
  local want = table.remove(picks, 1)
  for at, title in ipairs(titles) do
    if want and title:find(want, 1, true) then
      return callback(items[at], at)
    end
  end
  callback(nil, nil)
end
vim.notify = function(text)
  messages[#messages + 1] = text
end
vim.api.nvim_create_autocmd('LspProgress', {
  callback = function(event)
    local params = event.data.params
    events[#events + 1] = { token = params.token, kind = params.value.kind, message = params.value.message }
  end,
})

local function wait(what, is_true, ms)
  assert(vim.wait(ms or 60000, is_true, 20), 'waited in vain for: ' .. what)
end
local function lines(name)
  return vim.api.nvim_buf_get_lines(vim.fn.bufnr(ws .. '/' .. name), 0, -1, false)
end
local function text(name)
  local file = io.open(ws .. '/' .. name, 'rb')
  if not file then
    return vim.NIL
  end
  local all = file:read('*a')
  file:close()
  return all
end
local function last(kind)
  for i = #events, 1, -1 do
    if events[i].kind == kind then
      return events[i]
    end
  end
end

local function start()
  local config = dofile(vim.env.FROG_LUA)
  config.cmd = vim.json.decode(vim.env.FROG_CMD)
  config.init_options = vim.json.decode(vim.env.FROG_OPTIONS)
  config.root_markers = { '.git' }
  vim.fn.mkdir(ws .. '/.git', 'p')
  -- The first `edit` of a headless Neovim loads its buffer twice, which detaches a client that came in between.
  vim.cmd.edit(ws .. '/sum.py')
  vim.lsp.config('frog', config)
  vim.lsp.enable('frog')
  vim.bo.filetype = 'python'
  wait('the server', function()
    local client = vim.lsp.get_clients({ name = 'frog' })[1]
    return client and client.initialized and vim.lsp.buf_is_attached(0, client.id)
  end)
  local client = vim.lsp.get_clients({ name = 'frog' })[1]
  out.encoding = client.offset_encoding
  wait('the commands', function()
    return vim.api.nvim_buf_get_commands(0, {}).LspFrogFix
  end)
  return client
end

local scenarios = {}

function scenarios.flow()
  start()
  local spot = { lnum = 1, col = 4, end_lnum = 1, end_col = 16, message = 'add subtracts', source = 'check' }
  vim.diagnostic.set(vim.api.nvim_create_namespace('check'), 0, { spot })
  vim.api.nvim_win_set_cursor(0, { 2, 6 })
  picks = { 'Fix with FrogNano: add subtracts', 'Apply' }
  -- Neovim itself sends a server nothing but the diagnostics of that server.
  vim.lsp.buf.code_action({ context = { diagnostics = vim.lsp.diagnostic.from(vim.diagnostic.get(0)) } })
  wait('the text', function()
    return lines('sum.py')[2] == '    return a + b'
  end)
  wait('the message', function()
    return vim.api.nvim_exec2('messages', { output = true }).output:find('FrogNano: applied')
  end)
  out.after = lines('sum.py')
  out.disk = text('sum.py')
  out.new_disk = text('pkg/new.py')
  vim.cmd('silent wall')
  out.disk_after_write = text('sum.py')
  out.new_after_write = text('pkg/new.py')
  vim.cmd.buffer(vim.fn.bufnr(ws .. '/sum.py'))
  vim.cmd('silent undo')
  out.undone = lines('sum.py')
end

function scenarios.commands()
  start()
  vim.cmd('LspFrogFix add is wrong')
  wait('the end', function()
    return last('end')
  end)
  wait('a proposal', function()
    return last('end').message:find('proposal')
  end)
  vim.cmd('LspFrogReview')
  wait('the hunks', function()
    return #vim.fn.getqflist() > 0
  end)
  wait('the diff', function()
    return vim.api.nvim_buf_get_name(0):find('%.diff$')
  end)
  out.diff = vim.api.nvim_buf_get_lines(0, 0, -1, false)
  out.hunks = vim.tbl_map(function(item)
    return { vim.fn.fnamemodify(vim.api.nvim_buf_get_name(item.bufnr), ':t'), item.lnum, item.text }
  end, vim.fn.getqflist())
  vim.cmd.buffer(vim.fn.bufnr(ws .. '/sum.py'))
  vim.cmd('LspFrogApply sum.py')
  wait('the text', function()
    return lines('sum.py')[2] == '    return a + b'
  end)
  wait('the message', function()
    return #messages > 0
  end)
  vim.cmd('LspFrogDiscard')
  wait('discarded', function()
    return messages[#messages] == 'discarded'
  end)
end

function scenarios.stale()
  start()
  vim.cmd('LspFrogFix add is wrong')
  wait('the end', function()
    return last('end')
  end)
  local handler = vim.lsp.handlers['workspace/applyEdit']
  local n = 0
  vim.lsp.handlers['workspace/applyEdit'] = function(err, params, context)
    n = n + 1
    if n == 1 then -- typed in the moment in which the edit arrives
      vim.api.nvim_buf_set_lines(vim.fn.bufnr(ws .. '/sum.py'), 0, 0, false, { '# typed' })
    end
    return handler(err, params, context)
  end
  vim.cmd('LspFrogApply sum.py')
  wait('the message', function()
    return #messages > 0
  end)
  out.after = lines('sum.py')
  out.n_edits = n
end

function scenarios.cancel()
  start()
  vim.cmd('LspFrogFix add is wrong')
  wait('a step', function()
    local report = last('report')
    return report and report.message:find('Bash')
  end)
  local begun = vim.uv.hrtime()
  vim.cmd('LspFrogCancel')
  wait('the end', function()
    return last('end')
  end)
  out.cancel_ms = (vim.uv.hrtime() - begun) / 1e6
  out.last = last('end').message
end

local ok, err = xpcall(scenarios[_G.arg[1]], debug.traceback)
out.error = not ok and err or nil
out.asked, out.messages, out.events = asked, messages, events
out.vim_messages = vim.api.nvim_exec2('messages', { output = true }).output
local file = assert(io.open(vim.env.OUT, 'w'))
file:write(vim.json.encode(out))
file:close()
for _, client in ipairs(vim.lsp.get_clients()) do
  client:stop()
end
vim.wait(5000, function()
  return #vim.lsp.get_clients() == 0
end, 20)
os.exit(0)
