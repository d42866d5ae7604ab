module barnabas/testserver

go 1.24
