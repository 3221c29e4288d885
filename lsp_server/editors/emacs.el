;;; frog.el --- FrogNano through Eglot  -*- lexical-binding: t -*-

;; Emacs 28 or newer with Eglot (part of Emacs since 29; before, the package eglot).  Save as frog.el in a folder
;; of `load-path' and add (require 'frog) to your init file.  Then, in a file of the project:
;;
;;   M-x eglot         start the server; it takes the place of another one for the language: to keep both, use a
;;                     multiplexer such as lspx or rass
;;   M-x frog-fix      asks what is wrong; empty: what is reported on the line or in the region
;;   M-x frog-review   the diff of the proposal
;;   M-x frog-apply    apply the proposal; with C-u these files and hunks of it: sum.py #2
;;   M-x frog-discard  drop the proposal; with C-u these files and hunks of it
;;   M-x frog-runs     choose the run that the commands are about
;;   M-x frog-cancel   stop all runs
;;   M-x frog-doctor   is a run possible here, and what is missing
;;
;; Run in Emacs 28.2 with Eglot 1.9 and in Emacs 30.1 with Eglot 1.17.  Eglot makes, renames and deletes no files:
;; those come as a patch.

;;; Code:

(require 'eglot)
(require 'flymake)
(require 'seq)

(defvar frog-options (make-hash-table)
  "Settings of frog-lsp.
For example (:tests (:command \"make check\") :limits (:maxSteps 40)).")

(defvar frog--chosen nil
  "The id of the run that the commands are about.
Without one it is the last run that has a proposal.")

(dolist (mode '(python-mode python-ts-mode js-mode c-mode go-mode rust-mode ruby-mode sh-mode))
  (add-to-list 'eglot-server-programs
               (cons mode (list "frog-lsp" :initializationOptions (lambda (_server) frog-options)))))

(defun frog--tell (&rest _)
  "Tell the servers at once what Eglot tells them only when Emacs is idle."
  (dolist (buffer (buffer-list))
    (with-current-buffer buffer
      (when (bound-and-true-p eglot--managed-mode) (eglot--signal-textDocument/didChange)))))

(defun frog--apply-edit (apply-it &rest edit)
  "Call APPLY-IT with EDIT; the server is told of all changes before and after."
  (frog--tell) ; else Eglot takes an edit that knows nothing of what was typed just now
  (unwind-protect (apply apply-it edit)
    (frog--tell))) ; frog-lsp looks whether the edit is really there

(advice-add 'eglot--apply-workspace-edit :around #'frog--apply-edit)

(defun frog--run (command &optional argument)
  "Run COMMAND of frog-lsp with ARGUMENT and return its result."
  (frog--tell)
  (jsonrpc-request (or (eglot-current-server) (user-error "No server here: M-x eglot"))
                   :workspace/executeCommand
                   (list :command command :arguments (vector (or argument (make-hash-table))))
                   :timeout 30))

;; Finding things ---------------------------------------------------------------------------------------------

(defun frog--range (beg end)
  "The range of the server from BEG to END."
  (list :start (eglot--pos-to-lsp-position beg) :end (eglot--pos-to-lsp-position end)))

(defun frog--diagnostics (beg end)
  "What any Flymake backend reports from BEG to END."
  (vconcat (mapcar (lambda (found)
                     (list :range (frog--range (flymake-diagnostic-beg found) (flymake-diagnostic-end found))
                           :message (flymake-diagnostic-text found)))
                   (and flymake-mode (flymake-diagnostics beg end)))))

(defun frog--run-id ()
  "The id of the chosen run, or of the last one that has a proposal."
  (let ((rows (reverse (append (frog--run "frog.runs") nil))))
    (or (and (seq-some (lambda (row) (equal (plist-get row :runId) frog--chosen)) rows) frog--chosen)
        (plist-get (seq-find (lambda (row)
                               (member (plist-get row :state) '("proposed" "partly-applied" "conflict")))
                             rows)
                   :runId)
        (user-error "There is no proposal"))))

(defun frog--parts (words)
  "The argument for the run and for WORDS: files, and hunks written #2."
  (let ((argument (list :runId (frog--run-id))) (files nil) (hunks nil))
    (dolist (word (split-string (or words "")))
      (if (string-match "\\`#\\([0-9]+\\)\\'" word)
          (push (string-to-number (match-string 1 word)) hunks)
        (push word files)))
    (append argument
            (and files (list :files (vconcat (nreverse files))))
            (and hunks (list :hunks (vconcat (nreverse hunks)))))))

(defun frog--read-parts ()
  "Ask for a part of the proposal where the person gave a prefix argument."
  (list (and current-prefix-arg (read-string "Files and hunks, such as sum.py #2 (empty: all) "))))

(defun frog--review-buffer (run-id)
  "The buffer that shows the review of RUN-ID, or nil."
  (seq-find (lambda (buffer)
              (string-suffix-p (format "/reviews/%s.diff" run-id) (or (buffer-file-name buffer) "")))
            (buffer-list)))

(defun frog--after-decision (run-id state)
  "Bring the review of RUN-ID up to date, which is now in STATE."
  (let ((buffer (frog--review-buffer run-id)))
    (when buffer
      (if (member state '("applied" "discarded"))
          (kill-buffer buffer)
        (save-window-excursion (frog--show-review run-id))))))

(defun frog--show-review (run-id)
  "Show the review of RUN-ID, as it is now."
  (let* ((revert-without-query '("/frog-lsp/reviews/"))
         (result (frog--run "frog.review" (list :runId run-id)))
         (buffer (find-file-noselect (plist-get result :path))))
    (with-current-buffer buffer (read-only-mode 1))
    (unless (eq (plist-get result :shown) t) (pop-to-buffer buffer))))

;; Commands ---------------------------------------------------------------------------------------------------

(defun frog-fix (issue)
  "Let FrogNano fix ISSUE in the project of this buffer.
An empty ISSUE means what is reported on this line or in the region,
else the region or the line itself."
  (interactive (list (read-string "What is wrong? (empty: what is reported here) ")))
  (let* ((region (use-region-p))
         (beg (if region (region-beginning) (line-beginning-position)))
         (end (if region (region-end) (line-end-position)))
         (argument (list :uri (plist-get (eglot--TextDocumentIdentifier) :uri) :range (frog--range beg end)))
         (result (frog--run "frog.fix"
                            (append argument
                                    (if (string-empty-p issue)
                                        (list :diagnostics (frog--diagnostics beg end))
                                      (list :issue issue)))))
         (place (plist-get result :place)))
    (setq frog--chosen (plist-get result :runId))
    (message (if (> place 0) "FrogNano: queued, place %d" "FrogNano runs") place)))

(defun frog-review ()
  "Show the proposal."
  (interactive)
  (frog--show-review (frog--run-id)))

(defun frog-apply (&optional parts)
  "Apply the proposal, or the PARTS of it: files, and hunks written #2."
  (interactive (frog--read-parts))
  (let ((result (frog--run "frog.apply" (frog--parts parts))))
    (frog--after-decision (plist-get result :runId) (plist-get result :state))
    (message "%s" (plist-get result :message))))

(defun frog-discard (&optional parts)
  "Drop the proposal, or the PARTS of it: files, and hunks written #2."
  (interactive (frog--read-parts))
  (let* ((result (frog--run "frog.discard" (frog--parts parts)))
         (is-gone (equal (plist-get result :state) "discarded")))
    (when is-gone (setq frog--chosen nil))
    (frog--after-decision (plist-get result :runId) (plist-get result :state))
    (message (if is-gone "FrogNano: discarded" "FrogNano: discarded in part"))))

(defun frog-cancel ()
  "Stop all runs."
  (interactive)
  (message "FrogNano: cancelled %d" (length (plist-get (frog--run "frog.cancel") :cancelled))))

(defun frog-runs ()
  "Show how the runs stand, and choose the one that the commands are about."
  (interactive)
  (let ((choices (mapcar (lambda (row)
                           (cons (format "%s: %s (%s)" (plist-get row :state) (plist-get row :title)
                                         (plist-get row :runId))
                                 (plist-get row :runId)))
                         (reverse (append (frog--run "frog.runs") nil)))))
    (if choices
        (setq frog--chosen (cdr (assoc (completing-read "Run: " choices nil t) choices)))
      (message "There are no runs"))))

(defun frog-doctor ()
  "Show whether a run is possible here, and what is missing."
  (interactive)
  (let ((result (frog--run "frog.doctor")))
    (with-help-window "*frog-doctor*"
      (princ (if (eq (plist-get result :ok) t) "A run is possible here.\n\n" "No run is possible yet.\n\n"))
      (seq-doseq (line (plist-get result :lines)) (princ (concat line "\n"))))))

(provide 'frog)
;;; frog.el ends here
