;; In the init file of Emacs 29 or newer.
(define-derived-mode bpftrace-mode c-mode "bpftrace")
(add-to-list 'auto-mode-alist '("\\.bt\\'" . bpftrace-mode))
(with-eval-after-load 'eglot
  (add-to-list 'eglot-server-programs '(bpftrace-mode . ("pytrace" "lsp"))))
(add-hook 'bpftrace-mode-hook #'eglot-ensure)
