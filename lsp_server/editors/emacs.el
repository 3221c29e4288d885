;; Emacs 29 or newer with Eglot. Add to your init.el.
;; Eglot runs one server for a mode: to keep another for the same language, use a multiplexer such as
;; lspx or rass.  M-x eglot-code-actions on a diagnostic offers "Fix with FrogNano".
;; Tested with the capabilities that Eglot 1.9 and 1.17 send, not in a running Emacs.

(require 'eglot)

(add-to-list 'eglot-server-programs '(python-mode . ("frog-lsp")))
(add-to-list 'eglot-server-programs '(python-ts-mode . ("frog-lsp")))

(defun frog--run (command argument)
  "Run COMMAND of frog-lsp with ARGUMENT and return its result."
  (jsonrpc-request (eglot--current-server-or-lose) :workspace/executeCommand
                   (list :command command :arguments (vector argument))))

(defun frog--last-run ()
  "The id of the last run that has a proposal."
  (let ((rows (append (frog--run "frog.runs" (make-hash-table)) nil)))
    (or (plist-get (seq-find (lambda (row)
                               (member (plist-get row :state) '("proposed" "partly-applied" "conflict")))
                             (reverse rows))
                   :runId)
        (user-error "There is no proposal"))))

(defun frog-fix (issue)
  "Let FrogNano fix ISSUE in the project of this buffer."
  (interactive "sWhat is wrong? ")
  (frog--run "frog.fix" (list :uri (eglot--path-to-uri (buffer-file-name)) :issue issue)))

(defun frog-cancel () "Stop all runs." (interactive) (frog--run "frog.cancel" (make-hash-table)))

(defun frog-review () "Show the last proposal." (interactive)
       (frog--run "frog.review" (list :runId (frog--last-run))))

(defun frog-apply () "Apply the last proposal." (interactive)
       (message "%s" (plist-get (frog--run "frog.apply" (list :runId (frog--last-run))) :message)))

(defun frog-discard () "Drop the last proposal." (interactive)
       (frog--run "frog.discard" (list :runId (frog--last-run))))
