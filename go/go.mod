module taskdiag.invalid/go

go 1.19
