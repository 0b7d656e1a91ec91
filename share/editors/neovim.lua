-- In init.lua of Neovim 0.11 or newer.
vim.filetype.add({ extension = { bt = "bpftrace" } })
vim.lsp.config("pytrace", {
  cmd = { "pytrace", "lsp" },
  filetypes = { "bpftrace" },
  root_markers = { ".git" },
})
vim.lsp.enable("pytrace")
