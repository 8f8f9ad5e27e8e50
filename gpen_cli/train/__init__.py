"""``gpen train``: the paper's training, on a folder of aligned faces. Needs the extra ``[train]``; nothing else imports this."""
