;; Emacs 28 or newer with Eglot (part of Emacs since 29; before, the package eglot). Add to your init.el.
;; Eglot runs one server for a mode: to keep another for the same language, use a multiplexer such as
;; lspx or rass.  Then, in a file of the project: M-x eglot, M-x frog-fix, M-x frog-review, M-x frog-apply.
;; Run in Emacs 28.2 with Eglot 1.9.  Eglot makes, renames and deletes no files: those come as a patch.

(require 'eglot)
(require 'flymake)
(require 'seq)

(defvar frog-options (make-hash-table)
  "Settings of frog-lsp, for example (:tests (:command \"make check\") :limits (:maxSteps 40)).")

(dolist (mode '(python-mode python-ts-mode js-mode c-mode go-mode rust-mode ruby-mode sh-mode))
  (add-to-list 'eglot-server-programs
               (cons mode (list "frog-lsp" :initializationOptions (lambda (_server) frog-options)))))

(defun frog--tell (&rest _)
  "Tell the servers at once what Eglot tells them only when Emacs has been idle for a while."
  (dolist (buffer (buffer-list))
    (with-current-buffer buffer
      (when (bound-and-true-p eglot--managed-mode) (eglot--signal-textDocument/didChange)))))

;; frog-lsp looks whether an edit is really there.
(advice-add 'eglot--apply-workspace-edit :after #'frog--tell)

(defun frog--run (command argument)
  "Run COMMAND of frog-lsp with ARGUMENT and return its result."
  (frog--tell)
  (jsonrpc-request (or (eglot-current-server) (user-error "No server here: M-x eglot"))
                   :workspace/executeCommand (list :command command :arguments (vector argument))
                   :timeout 30))

(defun frog--range (beg end)
  "The range of the server from BEG to END."
  (list :start (eglot--pos-to-lsp-position beg) :end (eglot--pos-to-lsp-position end)))

(defun frog--diagnostics (beg end)
  "What any Flymake backend reports from BEG to END."
  (vconcat (mapcar (lambda (found)
                     (list :range (frog--range (flymake-diagnostic-beg found) (flymake-diagnostic-end found))
                           :message (flymake-diagnostic-text found)))
                   (and flymake-mode (flymake-diagnostics beg end)))))

(defun frog--last-run ()
  "The id of the last run that has a proposal."
  (let ((rows (append (frog--run "frog.runs" (make-hash-table)) nil)))
    (or (plist-get (seq-find (lambda (row)
                               (member (plist-get row :state) '("proposed" "partly-applied" "conflict")))
                             (reverse rows))
                   :runId)
        (user-error "There is no proposal"))))

(defun frog-fix (issue)
  "Let FrogNano fix ISSUE in the project of this buffer.
An empty ISSUE means what is reported on this line or in the region, else the region or the line itself."
  (interactive "sWhat is wrong? (empty: what is reported here) ")
  (let* ((region (use-region-p))
         (beg (if region (region-beginning) (line-beginning-position)))
         (end (if region (region-end) (line-end-position)))
         (argument (list :uri (plist-get (eglot--TextDocumentIdentifier) :uri) :range (frog--range beg end))))
    (if (string-empty-p issue)
        (setq argument (append argument (list :diagnostics (frog--diagnostics beg end))))
      (setq argument (append argument (list :issue issue))))
    (message "FrogNano runs: %s" (plist-get (frog--run "frog.fix" argument) :runId))))

(defun frog-runs () "Say how the runs stand." (interactive)
       (message "%s" (mapconcat (lambda (row) (format "%s: %s" (plist-get row :state) (plist-get row :title)))
                                (frog--run "frog.runs" (make-hash-table)) "\n")))

(defun frog-cancel () "Stop all runs." (interactive) (frog--run "frog.cancel" (make-hash-table)))

(defun frog-review () "Show the last proposal." (interactive)
       (let ((result (frog--run "frog.review" (list :runId (frog--last-run)))))
         (unless (eq (plist-get result :shown) t)
           (find-file-read-only-other-window (plist-get result :path)))))

(defun frog-apply () "Apply the last proposal." (interactive)
       (message "%s" (plist-get (frog--run "frog.apply" (list :runId (frog--last-run))) :message)))

(defun frog-discard () "Drop the last proposal." (interactive)
       (frog--run "frog.discard" (list :runId (frog--last-run))))
