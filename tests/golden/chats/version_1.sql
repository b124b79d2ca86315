PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE chats (
    id TEXT PRIMARY KEY, title TEXT NOT NULL, first TEXT NOT NULL, system TEXT NOT NULL, model TEXT NOT NULL,
    created REAL NOT NULL, updated REAL NOT NULL, deleted REAL, head TEXT
);
CREATE VIRTUAL TABLE search USING fts5(turn UNINDEXED, chat UNINDEXED, user, text, tokenize='unicode61');
INSERT INTO "chats" VALUES('c0ffee00000000000000000000000000','A kept chat','hello
漢字 👩‍👩‍👧‍👦','Be “brief”.','fake-135m',1700000000.0,1700000011.0,NULL,'00000000000000000000000000000004');
INSERT INTO "search" VALUES('00000000000000000000000000000001','c0ffee00000000000000000000000000','hello
漢字 👩‍👩‍👧‍👦','The answer is **forty-two** — 漢字 and more.');
INSERT INTO "search" VALUES('00000000000000000000000000000002','c0ffee00000000000000000000000000','why?','<think>
Secret steps.
</think>

The reply is 42.');
INSERT INTO "search" VALUES('00000000000000000000000000000003','c0ffee00000000000000000000000000','a picture','Cut in the mid');
INSERT INTO "search" VALUES('00000000000000000000000000000004','c0ffee00000000000000000000000000','broken','Partial');
CREATE TABLE turns (
    id TEXT PRIMARY KEY, chat TEXT NOT NULL, parent TEXT, created REAL NOT NULL, user TEXT NOT NULL,
    images TEXT NOT NULL, text TEXT NOT NULL, prov TEXT NOT NULL, status TEXT NOT NULL, error TEXT NOT NULL,
    meta TEXT NOT NULL, rounds BLOB
);
INSERT INTO "turns" VALUES('00000000000000000000000000000001','c0ffee00000000000000000000000000',NULL,1700000000.0,'hello
漢字 👩‍👩‍👧‍👦','[]','The answer is **forty-two** — 漢字 and more.','[[4,1],[12,2],[8,1],[4,2],[4,1],[8,2],[2,1]]','done','','{"drafter":"dflash","model":"fake-135m","seed":7,"first_ms":0.0,"started":1700000000.0,"usage":{"prompt":40,"completion":9,"cached":0,"drafted":0,"accepted":0,"rounds":0,"prefill_ms":0.0,"decode_ms":0.0},"asked":{"sampling":{"temperature":0.7,"top_p":0.9,"logit_bias":{"5":-1.5,"9":2.0},"seed":7},"checksum":123456789,"pictures":false},"prefilled":{"tokens":40,"cached":12,"ms":12.5,"queued_ms":0.0,"hit":"turn","restore_ms":0.0,"saved_ms":900.0}}',X'789C8D904B0AC3300C44EFE2F55064C571DDB3082D0225141A48E9E7FE1D39A1DB06E3F1D88C1E92CD4C9005260E7308D2F539CDEFC4735EA6D72D614039313286C48EC558629E2E876A847C77CECB3F48412FED10E5336CA4BB88082839448F34D33923D2B2AEF7CF037B8AA801B9C22ACE1EFA033BF3879875EB8DBEC11A2E1CD937132CE79C87302D309DD39035B02AD0026D18F85515854175FF02D5395C6D');
INSERT INTO "turns" VALUES('00000000000000000000000000000002','c0ffee00000000000000000000000000','00000000000000000000000000000001',1700000000.0,'why?','[]','<think>
Secret steps.
</think>

The reply is 42.','[[4,1],[12,3],[8,1],[4,3],[4,1],[8,3],[8,1]]','done','','{"drafter":"dflash","model":"fake-135m","seed":7,"first_ms":1000.0,"started":1700000000.0,"usage":{"prompt":40,"completion":9,"cached":0,"drafted":0,"accepted":0,"rounds":0,"prefill_ms":0.0,"decode_ms":0.0},"thoughts":[[8,21]],"replies":[[32,48]],"thought_s":5.0,"asked":{"sampling":{"temperature":0.7,"top_p":0.9,"logit_bias":{"5":-1.5,"9":2.0},"seed":7},"checksum":123456789,"pictures":false},"prefilled":{"tokens":40,"cached":12,"ms":12.5,"queued_ms":0.0,"hit":"turn","restore_ms":0.0,"saved_ms":900.0}}',X'789C9D90C10A02310C44FFA5E741D26C5BEBB7841C0411C18515C4FF77D28A5717291DA665F2486266822C3071984390D66DBBBF1E09E9725DCFCF5BC2827260A686C48DC35C62015D0ED508F9C7391F3F2905A3765094DFB04A771211507288EE6A6780EA042DC80DD670F4D02FCC19D9C7699343DF611D270EEAD304CC39DD3E4E9F9C0A8DF5E4FF27D3B1A2D15247D6E850055AA01D0B77DD50182C28DDFD0DCC9C6BD0');
INSERT INTO "turns" VALUES('00000000000000000000000000000003','c0ffee00000000000000000000000000','00000000000000000000000000000002',1700000000.0,'a picture','["a.png: 3 \u00d7 4, 12 tokens"]','Cut in the mid','[[4,1],[8,2],[2,1]]','length','','{"drafter":"dflash","model":"fake-135m","seed":7,"first_ms":6000.0,"started":1700000000.0,"usage":{"prompt":3,"completion":0,"cached":0,"drafted":0,"accepted":0,"rounds":0,"prefill_ms":0.0,"decode_ms":0.0},"asked":{"sampling":{"temperature":0.7,"top_p":0.9,"logit_bias":{"5":-1.5,"9":2.0},"seed":7},"checksum":123456789,"pictures":false},"prefilled":{"tokens":40,"cached":12,"ms":12.5,"queued_ms":0.0,"hit":"turn","restore_ms":0.0,"saved_ms":900.0}}',X'789C858C410A80400C03FFB2E720ED6E057D4BE96141160F9ED4FF63AA0F90D2248764DC5DA00297800704653BFBB80B7D1CFDDA0B1A6C62654EC9CF63ADB0CFA4A9152D3E5F4508AABF14C3BB258543C302AD508B7800CF7921D9');
INSERT INTO "turns" VALUES('00000000000000000000000000000004','c0ffee00000000000000000000000000','00000000000000000000000000000002',1700000000.0,'broken','[]','Partial','[[7,1]]','failed','out of memory','{"drafter":"dflash","model":"fake-135m","seed":7,"first_ms":7000.0,"started":1700000000.0,"usage":{"prompt":0,"completion":0,"cached":0,"drafted":0,"accepted":0,"rounds":0,"prefill_ms":0.0,"decode_ms":0.0},"asked":{"sampling":{"temperature":0.7,"top_p":0.9,"logit_bias":{"5":-1.5,"9":2.0},"seed":7},"checksum":123456789,"pictures":false},"prefilled":{"tokens":40,"cached":12,"ms":12.5,"queued_ms":0.0,"hit":"turn","restore_ms":0.0,"saved_ms":900.0}}',X'789C8D8C410A80400C03FFD27390ACAE886F293D2CC8B2074FEAFF31F505523AC92189BB138570063C40D871B5FE98B49FED1E86057552644DE4E72966CACB15516E2709A124E63F3B155F5B3BAA576C112F4B72212B');
CREATE INDEX chats_updated ON chats (deleted, updated DESC);
CREATE INDEX turns_chat ON turns (chat, parent);
COMMIT;
