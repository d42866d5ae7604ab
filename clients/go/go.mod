module github.com/barnabas-kafka/barnabas/clients/go

go 1.24
