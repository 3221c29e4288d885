-- nvim --headless -i NONE -n -S neovim.lua        (env: SCENARIO, WS, OUT; the snippet is in the user's own folder)
-- Drives the server in a real Neovim; writes what happened to OUT as JSON. Scenarios: neovim_scenarios.lua.
local t = { ws = vim.env.WS, out = {}, picks = {}, asked = {}, messages = {}, events = {}, deprecated = {} }

vim.ui.select = function(items, options, callback)
  local titles = {}
  for _, item in ipairs(items) do
    titles[#titles + 1] = options.format_item and options.format_item(item) or tostring(item)
  end
  t.asked[#t.asked + 1] = { prompt = options.prompt, items = titles }
  local want = table.remove(t.picks, 1)
  for at, title in ipairs(titles) do
    if want and title:find(want, 1, true) then
      return callback(items[at], at)
    end
  end
  callback(nil, nil)
end
vim.notify = function(text)
  t.messages[#t.messages + 1] = text
end
vim.deprecate = function(name)
  t.deprecated[#t.deprecated + 1] = name
end
vim.api.nvim_create_autocmd('LspProgress', {
  callback = function(event)
    local params = event.data.params
    t.events[#t.events + 1] = { token = params.token, kind = params.value.kind, message = params.value.message }
  end,
})

function t.wait(what, is_true, ms)
  assert(vim.wait(ms or 40000, is_true, 20), 'waited in vain for: ' .. what)
end

-- The same while the editor takes what is typed.
function t.wait_in_loop(what, is_true)
  local thread, timer, end_ms = coroutine.running(), assert(vim.uv.new_timer()), vim.uv.now() + 40000
  local function look()
    if not timer:is_closing() and (is_true() or vim.uv.now() > end_ms) then
      timer:close()
      coroutine.resume(thread)
    end
  end
  timer:start(20, 20, vim.schedule_wrap(look))
  coroutine.yield()
  t.wait(what, is_true, 0)
end

function t.wait_for_message(pattern)
  t.wait('message ' .. pattern, function()
    return (t.messages[#t.messages] or ''):find(pattern)
  end)
  return t.messages[#t.messages]
end

function t.path(name)
  return t.ws .. '/' .. name
end

function t.buffer(name)
  return vim.fn.bufnr('^' .. t.path(name) .. '$')
end

function t.text(name)
  return table.concat(vim.api.nvim_buf_get_lines(t.buffer(name), 0, -1, false), '\n') .. '\n'
end

function t.go_to(name)
  vim.cmd.buffer(t.buffer(name))
end

function t.set(name, first, last, lines)
  vim.api.nvim_buf_set_lines(t.buffer(name), first, last, false, lines)
end

function t.wait_for_text(name, part)
  t.wait(part, function()
    return t.buffer(name) > 0 and t.text(name):find(part, 1, true)
  end)
end

-- Every file of the workspace with its bytes.
function t.disk()
  local found = {}
  for name, kind in vim.fs.dir(t.ws, { depth = 9 }) do
    if kind == 'file' and not name:match('^%.git/') then
      local file = assert(io.open(t.path(name), 'rb'))
      found[name] = file:read('*a')
      file:close()
    end
  end
  return found
end

function t.assert_untouched()
  assert(vim.deep_equal(t.disk(), t.before), 'the workspace changed: ' .. vim.inspect(t.disk()))
end

function t.client()
  return vim.lsp.get_clients({ name = 'frog' })[1]
end

function t.start(name)
  vim.cmd.edit(t.path(name or 'sum.py'))
  t.wait('the server', function()
    return t.client() and t.client().initialized and vim.api.nvim_buf_get_commands(0, {}).LspFrogFix
  end)
  t.before = t.before or t.disk()
end

function t.last(kind)
  for i = #t.events, 1, -1 do
    if t.events[i].kind == kind then
      return t.events[i].message
    end
  end
end

function t.n_ended()
  return #vim.tbl_filter(function(event)
    return event.kind == 'end'
  end, t.events)
end

function t.wait_for_step(part)
  t.wait('step ' .. part, function()
    return (t.last('report') or ''):find(part, 1, true)
  end)
end

-- A run from words to its proposal, which touches nothing.
function t.propose(words)
  local n = t.n_ended()
  vim.cmd('LspFrogFix ' .. (words or 'add is wrong'))
  t.wait('the end', function()
    return t.n_ended() > n
  end)
  assert(t.last('end'):find('^a proposal'), t.last('end'))
  t.wait_until_kept()
  t.assert_untouched()
end

function t.rows()
  local answer = assert(t.client():request_sync('workspace/executeCommand', {
    command = 'frog.runs',
    arguments = { vim.empty_dict() },
  }, 10000))
  return answer.result
end

function t.wait_until_kept()
  t.wait('the proposal', function()
    return t.rows()[#t.rows()].state == 'proposed'
  end)
end

function t.apply(arguments, pattern)
  t.messages = {}
  vim.cmd('LspFrogApply ' .. (arguments or ''))
  return t.wait_for_message(pattern or '^FrogNano')
end

-- The review as a person sees it.
function t.review()
  vim.cmd('LspFrogReview')
  t.wait('the review', function()
    return vim.api.nvim_buf_get_name(0):find('%.diff$') and #vim.fn.getqflist() > 0
  end)
  return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\n')
end

function t.quickfix()
  return vim.tbl_map(function(item)
    return { vim.fn.fnamemodify(vim.api.nvim_buf_get_name(item.bufnr), ':t'), item.lnum, item.text }
  end, vim.fn.getqflist())
end

local scenarios = assert(loadfile(vim.fs.dirname(debug.getinfo(1, 'S').source:sub(2)) .. '/neovim_scenarios.lua'))(t)

local function go()
  local ok, err = xpcall(scenarios[vim.env.SCENARIO], debug.traceback)
  local out = t.out
  out.error = not ok and err or nil
  out.asked, out.messages, out.events, out.deprecated = t.asked, t.messages, t.events, t.deprecated
  out.echoed = vim.api.nvim_exec2('messages', { output = true }).output
  local file = assert(io.open(vim.env.OUT, 'w'))
  file:write(vim.json.encode(out))
  file:close()
  vim.cmd('qa!')
end
vim.api.nvim_create_autocmd('VimEnter', { callback = vim.schedule_wrap(coroutine.wrap(go)) })
